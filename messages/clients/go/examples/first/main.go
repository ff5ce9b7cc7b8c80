package main

import (
	"context"
	"fmt"
	"os"

	client "dormouse/client"
)

func main() {
	c, _ := client.Connect(os.Args[1], "ads")
	done, err := c.Submit(context.Background(), map[string]any{"name": "from-go",
		"command": map[string]any{"start": []string{"sh", "-c", "echo rank $DORMOUSE_RANK"}},
		"demand":  map[string]any{"cpu": 1, "memory": "64Mi"}, "containers": client.Bounds{Min: 1, Max: 2}})
	fmt.Println(done.State, err)
}
