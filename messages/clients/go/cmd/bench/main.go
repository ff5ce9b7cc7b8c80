// Command bench measures submissions a second, and the time of a decision: bench URL TENANT [COUNT].
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"

	client "dormouse/client"
)

func job(name string) map[string]any {
	return map[string]any{"name": name, "command": map[string]any{"start": []string{"true"}},
		"demand": map[string]any{"cpu": 1000, "memory": "1Gi"}}
}

func main() {
	count := 10_000
	if len(os.Args) > 3 {
		count, _ = strconv.Atoi(os.Args[3])
	}
	c, err := client.Connect(os.Args[1], os.Args[2], client.WithTimeout(time.Minute))
	if err != nil {
		panic(err)
	}
	defer c.Close()
	var decided []time.Duration
	// One after the other: a twentieth.
	for index := range count / 20 {
		began := time.Now()
		// Larger than any node: refused, which is a decision too.
		_, _ = c.Submit(context.Background(), job(fmt.Sprint("one-", index)))
		decided = append(decided, time.Since(began))
	}
	sort.Slice(decided, func(a, b int) bool { return decided[a] < decided[b] })
	began := time.Now()
	var all sync.WaitGroup
	for index := range count {
		all.Go(func() {
			if _, err := c.Submit(context.Background(), job(fmt.Sprint("many-", index)), client.How{Wait: client.Accepted}); err != nil {
				panic(err)
			}
		})
	}
	all.Wait()
	rate := float64(count) / time.Since(began).Seconds()
	median := float64(decided[len(decided)/2].Microseconds()) / 1000
	fmt.Printf("go: %.0f submissions/s acknowledged; decision in %.2f ms (median of %d)\n", rate, median, len(decided))
}
