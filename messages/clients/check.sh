#!/usr/bin/env bash
# Builds the clients as they are packaged, and holds them to the schema, their examples and the suite.
#
#   messages/clients/check.sh [--main URL] [--rust COMMAND] [--jaeger URL --otlp URL] [LANGUAGE...]
#
# Languages: python go typescript java; by default all. With --main (the broker of a running
# `dormouse up` with room for two containers of 1 processor) the first examples and conformance.json
# are run too, with --rust also the Rust client's driver. With --jaeger, to which that cluster sends its
# spans, a job of each language is followed there instead (traces.py). scripts/install.sh clients installs what this needs.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
tools=${DORMOUSE_CLIENT_TOOLS:-$root/.tools/clients}
export PATH=$tools/python/bin:$tools/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 npm_config_update_notifier=false
main='' rust='' jaeger='' otlp='' languages=()
while [ $# -gt 0 ]; do
  case $1 in
    --main) main=$2; shift 2 ;;
    --rust) rust=$2; shift 2 ;;
    --jaeger) jaeger=$2; shift 2 ;;
    --otlp) otlp=$2; shift 2 ;;
    *) languages+=("$1"); shift ;;
  esac
done
[ ${#languages[@]} -gt 0 ] || languages=(python go typescript java)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
drivers=()

die() { printf 'clients: error: %s\n' "$*" >&2; exit 1; }

# same FILE FILE HOW: a generated file is what its generator makes.
same() { cmp -s "$1" "$2" || { diff "$1" "$2" | head -20 >&2 || true; die "$2 is not what the schema says: run $3"; }; }

# typed LANGUAGE DOCUMENT FILE: a file of types is what the document's schema says.
typed() {
  "$here/$1/generate.sh" "$2" "$work/typed" 2>/dev/null
  same "$work/typed" "$3" "$here/$1/generate.sh $2 $3"
}

# first LANGUAGE COMMAND...: the example submits a job that is admitted. Its name is taken the second time.
first() {
  local said language=$1
  shift
  [ -n "$main" ] || return 0
  said=$("$@" "$main") || die "the first example of $language failed: $said"
  [[ $said == admitted* ]] || die "the first example of $language said '$said', not 'admitted'"
}

# many LANGUAGE COMMAND...: more submissions at once than wait for one tenant: each waits until there is room.
many() {
  local language=$1
  shift
  [ -n "$main" ] || return 0
  "$@" "$main" "many-$language" 2000 || die "2,000 submissions at once of $language failed"
}

check_python() {
  local folder=$here/python
  typed python job "$folder/src/dormouse_client/types.py"
  typed python measured "$folder/src/dormouse_client/measured.py"
  # Built from a copy: the build leaves nothing in the repository.
  cp -r "$folder" "$work/python"
  python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work" "$work/python"
  python -m pip install --quiet --no-deps --force-reinstall "$work"/dormouse_client-*.whl
  python -c 'import dormouse_client.types, importlib.resources as r; assert r.files("dormouse_client").joinpath("py.typed").is_file()'
  first python python "$folder/examples/first.py"
  many python python "$folder/bench.py"
  drivers+=(--driver "python=python $folder/conformance.py")
}

check_go() {
  local folder=$here/go
  typed go job "$folder/types.go"
  typed go measured "$folder/measured.go"
  (cd "$folder" && [ -z "$(gofmt -l .)" ] && go vet ./... && go build -o "$work/go-driver" ./cmd/conformance && go build -o "$work/go-first" ./examples/first && go build -o "$work/go-bench" ./cmd/bench)
  first go "$work/go-first"
  many go "$work/go-bench"
  drivers+=(--driver "go=$work/go-driver")
}

check_typescript() {
  local folder=$here/typescript
  (cd "$folder" && node generate.mjs --check && rm -rf dist && node_modules/.bin/tsc -p . && npm pack --silent --pack-destination "$work" >/dev/null)
  # As a stranger gets it: from the package.
  mkdir -p "$work/typescript/node_modules/dormouse-client"
  tar -xzf "$work"/dormouse-client-*.tgz -C "$work/typescript/node_modules/dormouse-client" --strip-components 1
  for module in "$folder"/node_modules/*; do ln -s "$module" "$work/typescript/node_modules/" 2>/dev/null || true; done
  cp "$folder/examples/first.mjs" "$work/typescript/"
  first typescript node "$work/typescript/first.mjs"
  many typescript node "$folder/bench.mjs"
  drivers+=(--driver "typescript=node $folder/conformance.mjs")
}

check_java() {
  local folder=$here/java classes
  (cd "$folder" && mvn --quiet --batch-mode -DskipTests package) || die "Maven did not build the client"
  classes="$folder/target/dormouse-client-0.1.0.jar:$folder/target/lib/*"
  java -cp "$folder/target/test-classes:$classes" dev.dormouse.client.Conformance --schema "$root/messages/schema/job-document.json" "$root/messages/schema/measured-document.json"
  first java java -cp "$classes" "$folder/examples/First.java"
  many java java -XX:TieredStopAtLevel=1 -cp "$folder/target/test-classes:$classes" dev.dormouse.client.Bench
  drivers+=(--driver "java=java -XX:TieredStopAtLevel=1 -cp $folder/target/test-classes:$classes dev.dormouse.client.Conformance")
}

# What the guide shows is what is run.
python3 - "$root/docs/clients.md" "$here"/python/examples/first.py "$here"/go/examples/first/main.go "$here"/typescript/examples/first.mjs "$here"/java/examples/First.java <<'PY' || die "docs/clients.md shows another example"
import sys
page, *examples = (open(path, encoding="utf-8").read() for path in sys.argv[1:])
sys.exit(any(f"\n{example}```" not in page for example in examples))
PY

for language in "${languages[@]}"; do
  began=$SECONDS
  "check_$language"
  echo "clients: $language is built and is as the schema says ($((SECONDS - began)) s)"
done
[ -n "$main" ] || exit 0
[ -z "$rust" ] || drivers+=(--driver "rust=$rust")
if [ -n "$jaeger" ]; then
  python3 "$here/traces.py" --main "$main" --jaeger "$jaeger" --otlp "$otlp" "${drivers[@]}"
  exit
fi
python3 "$here/conformance.py" --main "$main" "${drivers[@]}"
