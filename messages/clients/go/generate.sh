#!/usr/bin/env bash
# Writes the types of a job document from its schema (messages/schema/job-document.json) to FILE.
#   generate.sh FILE      with go-jsonschema v0.24.1 and gofmt on the PATH
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
go-jsonschema --only-models --tags json --package client --struct-name-from-title ../../schema/job-document.json | gofmt >"$1"
