package client

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// Events are a job's events, from the call of Watch to the job's end.
type Events struct {
	// C is closed after the job's end, or when watching stops.
	C            <-chan *Event
	stop         sync.Once
	stopped      chan struct{}
	subscription *nats.Subscription
}

// Stop ends watching; it may be called twice.
func (e *Events) Stop() {
	e.stop.Do(func() {
		close(e.stopped)
		_ = e.subscription.Unsubscribe()
	})
}

// Watch listens to a job, which need not be submitted yet. It stops with the context.
func (c *Client) Watch(ctx context.Context, job string) (*Events, error) {
	name := strings.TrimPrefix(job, c.tenant+"/")
	if !nameForm.MatchString(name) {
		return nil, &Refused{Code: "bad_name", Reason: fmt.Sprintf("job name %q is not 1 to 63 of a-z, 0-9 and '-'", name)}
	}
	subject := fmt.Sprintf("%s.status.%s.%s.>", c.prefix, c.tenant, name)
	messages := make(chan *nats.Msg, 1024)
	subscription, err := c.nc.ChanSubscribe(subject, messages)
	if err != nil {
		return nil, err
	}
	if err := c.nc.FlushTimeout(c.timeout); err != nil {
		return nil, &Unavailable{"the broker does not answer: " + err.Error()}
	}
	if c.isDenied(subject) {
		return nil, &Denied{subject}
	}
	out := make(chan *Event)
	events := &Events{C: out, stopped: make(chan struct{}), subscription: subscription}
	go func() {
		defer close(out)
		defer events.Stop()
		last := uint64(0)
		for {
			select {
			case message := <-messages:
				event, err := decodeEvent(message.Data, message.Header.Get("Nats-Sequence"))
				// An event may come twice when another copy of the service shows them.
				if err != nil || event.Sequence <= last {
					continue
				}
				last = event.Sequence
				select {
				case out <- event:
				case <-events.stopped:
					return
				case <-ctx.Done():
					return
				}
				if event.IsEnd() {
					return
				}
			case <-events.stopped:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return events, nil
}
