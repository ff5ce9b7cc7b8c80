//go:build tools

// Package compose names the program that this module is for.
package compose

import _ "github.com/docker/compose/v2/cmd"
