#!/usr/bin/env bash
# Writes the types of a job document from its schema (messages/schema/job-document.json) to FILE.
#   generate.sh FILE      with datamodel-code-generator 0.89.0 on the PATH
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
datamodel-codegen --input ../../schema/job-document.json --input-file-type jsonschema \
  --output-model-type typing.TypedDict --target-python-version 3.11 --use-schema-description --use-field-description \
  --enum-field-as-literal all --no-use-closed-typed-dict --formatters builtin --disable-timestamp --class-name JobDocument \
  --custom-file-header "# Written by generate.sh from messages/schema/job-document.json; not by hand." \
  --output "$1"
