//go:build tools

// Package jaeger names the program that this module is for.
package jaeger

import _ "github.com/jaegertracing/jaeger/cmd/jaeger"
