// Command conformance is the driver of conformance.json for this client: one line of JSON a case.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	client "dormouse/client"
)

type step struct {
	Submit      map[string]any
	Watched     map[string]any
	Cancel      *string
	Revise      map[string]any
	Measure     map[string]any
	Query       string
	Request     map[string]any
	Wait        string
	Encoding    client.Encoding
	Traceparent string
	Client      int
	TimeoutMS   int64 `json:"timeout_ms"`
}

type testCase struct {
	Name, Broker, Tenant string
	Steps                []step
}

type driver struct {
	urls    map[string]*string
	tenant  string
	clients map[string]*client.Client
}

// value is a document of the suite, with its special values.
func value(written any, tenant string) any {
	switch written := written.(type) {
	case []any:
		for index, item := range written {
			written[index] = value(item, tenant)
		}
	case map[string]any:
		for key, item := range written {
			switch key {
			case "$u64":
				return json.Number(item.(string))
			case "$float":
				float, _ := strconv.ParseFloat(item.(string), 64)
				return float
			case "$repeat":
				pair := item.([]any)
				times, _ := pair[1].(json.Number).Int64()
				return strings.Repeat(pair[0].(string), int(times))
			case "$tenant":
				if item == "" {
					return tenant
				}
				return tenant + "/" + item.(string)
			}
			written[key] = value(item, tenant)
		}
	}
	return written
}

func (d *driver) client(broker, tenant string, step step) (*client.Client, error) {
	if step.Encoding == "" {
		step.Encoding = client.JSON
	}
	key := fmt.Sprint(broker, tenant, step.Encoding, step.Client)
	if d.clients[key] == nil {
		connected, err := client.Connect(*d.urls[broker], tenant, client.WithEncoding(step.Encoding))
		if err != nil {
			return nil, err
		}
		d.clients[key] = connected
	}
	return d.clients[key], nil
}

func (d *driver) step(test testCase, step step) (any, error) {
	broker, tenant := test.Broker, test.Tenant
	if broker == "" {
		broker = "main"
	}
	if tenant == "" {
		tenant = d.tenant
	}
	c, err := d.client(broker, tenant, step)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	if step.TimeoutMS > 0 {
		bounded, cancel := context.WithTimeout(ctx, time.Duration(step.TimeoutMS)*time.Millisecond)
		defer cancel()
		ctx = bounded
	}
	waits := map[string]client.Wait{"": client.Decided, "decided": client.Decided, "accepted": client.Accepted, "started": client.Started, "ended": client.Ended}
	switch {
	case step.Submit != nil:
		done, err := c.Submit(ctx, value(step.Submit, tenant), client.How{Wait: waits[step.Wait]})
		if err != nil {
			return nil, err
		}
		return map[string]any{"state": done.State, "existing": done.Existing, "sha256": done.SHA256}, nil
	case step.Cancel != nil:
		return changed(c.Cancel(ctx, *step.Cancel))
	case step.Revise != nil:
		var revision struct {
			Job string
			client.Revision
		}
		text, _ := json.Marshal(step.Revise)
		if err := json.Unmarshal(text, &revision); err != nil {
			return nil, err
		}
		return changed(c.Revise(ctx, revision.Job, revision.Revision))
	case step.Measure != nil:
		return changed(c.Measure(ctx, value(step.Measure, tenant)))
	case step.Query != "":
		var request any
		if step.Request != nil {
			request = step.Request
		}
		var answer map[string]any
		err := c.Query(ctx, step.Query, request, &answer)
		return answer, err
	}
	return watched(ctx, c, value(step.Watched, tenant).(map[string]any), step.Traceparent)
}

func watched(ctx context.Context, c *client.Client, document map[string]any, traceparent string) (any, error) {
	events, err := c.Watch(ctx, document["name"].(string))
	if err != nil {
		return nil, err
	}
	defer events.Stop()
	if _, err := c.Submit(ctx, document, client.How{Traceparent: traceparent}); err != nil {
		return nil, err
	}
	types, trace := []string{}, ""
	for event := range events.C {
		if trace == "" {
			trace = strings.Split(event.Traceparent+"--", "-")[1]
		}
		types = append(types, event.Type)
	}
	return map[string]any{"types": types, "trace": trace}, nil
}

func changed(event *client.Event, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return map[string]any{"type": event.Type, "data": event.Data}, nil
}

func said(err error) map[string]any {
	var refused *client.Refused
	var timedOut *client.TimedOut
	var unavailable *client.Unavailable
	var denied *client.Denied
	switch {
	case errors.As(err, &refused):
		return map[string]any{"class": "Refused", "code": refused.Code}
	case errors.As(err, &timedOut):
		return map[string]any{"class": "TimedOut", "stored": timedOut.Stored}
	case errors.As(err, &unavailable):
		return map[string]any{"class": "Unavailable"}
	case errors.As(err, &denied):
		return map[string]any{"class": "Denied"}
	}
	return map[string]any{"class": fmt.Sprintf("%T", err), "text": err.Error()}
}

func main() {
	urls := map[string]*string{}
	for _, broker := range []string{"main", "restricted", "cutting"} {
		urls[broker] = flag.String(broker, "", "its URL")
	}
	tenant, path := flag.String("tenant", "", "the tenant"), flag.String("cases", "", "conformance.json")
	flag.Parse()
	d := &driver{urls: urls, tenant: *tenant, clients: map[string]*client.Client{}}
	file, err := os.Open(*path)
	if err != nil {
		panic(err)
	}
	var suite struct{ Cases []testCase }
	decoder := json.NewDecoder(file)
	decoder.UseNumber()
	if err := decoder.Decode(&suite); err != nil {
		panic(err)
	}
	out := json.NewEncoder(os.Stdout)
	for _, test := range suite.Cases {
		var result any
		var err error
		for _, step := range test.Steps {
			if result, err = d.step(test, step); err != nil {
				break
			}
		}
		line := map[string]any{"case": test.Name, "ok": result}
		if err != nil {
			line = map[string]any{"case": test.Name, "error": said(err)}
		}
		_ = out.Encode(line)
	}
	for _, c := range d.clients {
		c.Close()
	}
}
