#!/usr/bin/env bash
# Writes the types of a document from its schema (messages/schema/NAME-document.json) to FILE.
#   generate.sh job FILE | generate.sh measured FILE      with datamodel-code-generator 0.89.0 on the PATH
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
case $1 in
  job) class=JobDocument ;;
  measured) class=MeasuredDocument ;;
  *) echo "generate.sh: $1 is not job or measured" >&2; exit 1 ;;
esac
datamodel-codegen --input "../../schema/$1-document.json" --input-file-type jsonschema \
  --output-model-type typing.TypedDict --target-python-version 3.11 --use-schema-description --use-field-description \
  --enum-field-as-literal all --no-use-closed-typed-dict --formatters builtin --disable-timestamp --class-name "$class" \
  --custom-file-header "# Written by generate.sh from messages/schema/$1-document.json; not by hand." \
  --output "$2"
