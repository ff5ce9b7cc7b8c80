#!/usr/bin/env bash
# Writes the types of a document from its schema (messages/schema/NAME-document.json) to FILE.
#   generate.sh job FILE | generate.sh measured FILE      with go-jsonschema v0.24.1 and gofmt on the PATH
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
go-jsonschema --only-models --tags json --package client --struct-name-from-title "../../schema/$1-document.json" | gofmt >"$2"
