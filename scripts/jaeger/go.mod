// Jaeger as a tool of this repository: its own module forbids `go install`, because it replaces
// a module; a module that requires it and says the same builds it.
module dormouse/jaeger

go 1.25.5

require github.com/jaegertracing/jaeger v1.76.0

replace github.com/Shopify/sarama => github.com/Shopify/sarama v1.33.0
