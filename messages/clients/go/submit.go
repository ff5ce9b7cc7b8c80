package client

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// How long a decision may be silent before it is asked for: a status message can be lost.
const silence = 2 * time.Second

// Wait says what a submission waits for.
type Wait int

// What a submission may wait for.
const (
	// Decided: admitted, or the error is a *Refused.
	Decided Wait = iota
	// Accepted: the broker has stored it.
	Accepted
	// Started: its containers run.
	Started
	// Ended: it has completed, failed or been cancelled.
	Ended
)

// How says how a message is sent. The zero value does.
type How struct {
	Wait Wait
	// Traceparent is the W3C trace context that the job's events continue.
	Traceparent string
}

// Submission is a job that the cluster has, or ("stored") that the broker has for it.
type Submission struct {
	Job             string
	IngressSequence uint64
	// State is "stored", "admitted", "started", "completed", "failed" or "cancelled".
	State string
	// Existing says whether the same document was submitted under this name before.
	Existing bool
	Reason   string
	SHA256   string
}

// Revision is what Revise changes; nil is left as it is.
type Revision struct {
	Weight     *uint32 `json:"weight,omitempty"`
	Containers *Bounds `json:"containers,omitempty"`
	// Priority is its place in the tenant's own queue: the highest goes first.
	Priority *int32 `json:"priority,omitempty"`
	// Held puts it on hold, or lets it go.
	Held *bool `json:"held,omitempty"`
	// Force allows a hold of a job that runs without a checkpoint: it begins again.
	Force bool `json:"force,omitempty"`
	// TimeLimitS is the most seconds that it may run, QueueLimitS those until its first start.
	TimeLimitS  *uint32 `json:"time_limit_s,omitempty"`
	QueueLimitS *uint32 `json:"queue_limit_s,omitempty"`
	// GpuLimit is the most of a GPU that a part of one may use while others leave it: a number, or
	// text such as "0.5". A running container has it at once.
	GpuLimit any `json:"gpu_limit,omitempty"`
}

// Bounds are the fewest and the most containers.
type Bounds struct {
	Min uint32 `json:"min"`
	Max uint32 `json:"max"`
}

// Submit submits a job document: a JobDocument, or anything that encoding/json writes as one. A
// document without a name is given one. Sending the same document under the same name again is
// safe, and succeeds.
func (c *Client) Submit(ctx context.Context, job any, how ...How) (*Submission, error) {
	chosen := How{}
	if len(how) > 0 {
		chosen = how[0]
	}
	document, err := plain(job)
	if err != nil {
		return nil, err
	}
	if document["name"] == nil {
		document["name"] = "job-" + strings.ToLower(rand.Text()[:16])
	}
	name := fmt.Sprint(document["name"])
	payload, err := encode(document, c.encoding)
	if err != nil {
		return nil, err
	}
	if chosen.Wait == Accepted || chosen.Wait == Decided || !nameForm.MatchString(name) {
		return c.submit(ctx, name, payload, chosen)
	}
	events, err := c.Watch(ctx, name)
	if err != nil {
		return nil, err
	}
	defer events.Stop()
	submission, err := c.submit(ctx, name, payload, chosen)
	if err != nil {
		return nil, err
	}
	return c.follow(ctx, submission, events, chosen.Wait)
}

// Cancel ends a job: "job.cancel_requested", or "job.cancelled" where it was still queued.
func (c *Client) Cancel(ctx context.Context, job string, how ...How) (*Event, error) {
	return c.change(ctx, "cancel", map[string]any{"job": job}, how)
}

// Revise changes what is set of a job: "job.revised".
func (c *Client) Revise(ctx context.Context, job string, revision Revision, how ...How) (*Event, error) {
	document := struct {
		Job string `json:"job"`
		Revision
	}{job, revision}
	return c.change(ctx, "revise", document, how)
}

// Measure says what clients of a service saw at a proxy of your own: a MeasuredDocument, or anything
// that encoding/json writes as one. "service.measured", or the error is a *Refused. One that has timed
// out may count or not: measure on.
func (c *Client) Measure(ctx context.Context, measurement any, how ...How) (*Event, error) {
	return c.change(ctx, "measured", measurement, how)
}

func (c *Client) change(ctx context.Context, verb string, document any, how []How) (*Event, error) {
	written, err := plain(document)
	if err != nil {
		return nil, err
	}
	payload, err := encode(written, c.encoding)
	if err != nil {
		return nil, err
	}
	if err := c.listen(); err != nil {
		return nil, err
	}
	traceparent := ""
	if len(how) > 0 {
		traceparent = how[0].Traceparent
	}
	sequence, err := c.publish(ctx, verb, payload, traceparent)
	if err != nil {
		return nil, err
	}
	event, _, err := c.decision(ctx, sequence, "", "")
	return event, err
}

func (c *Client) submit(ctx context.Context, name string, payload []byte, how How) (*Submission, error) {
	hash := sha256.Sum256(payload)
	submission := &Submission{Job: c.tenant + "/" + name, State: "stored", SHA256: hex.EncodeToString(hash[:])}
	if how.Wait != Accepted {
		if err := c.listen(); err != nil {
			return nil, err
		}
	}
	sequence, err := c.publish(ctx, "submit", payload, how.Traceparent)
	if err != nil {
		return nil, err
	}
	submission.IngressSequence = sequence
	if how.Wait == Accepted {
		return submission, nil
	}
	submission.State = "admitted"
	_, known, err := c.decision(ctx, sequence, submission.Job, submission.SHA256)
	var refused *Refused
	if errors.As(err, &refused) && refused.Code == "name_in_use" {
		if known = c.known(ctx, submission.Job, submission.SHA256, sequence); known != nil {
			return known, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if known != nil {
		return known, nil
	}
	return submission, nil
}

// decision waits for what becomes of a message; of a submission it asks in between.
func (c *Client) decision(ctx context.Context, sequence uint64, job, sha256 string) (*Event, *Submission, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	waiting := make(chan *nats.Msg, 1)
	c.mutex.Lock()
	if recent, ok := c.recent[sequence]; ok {
		delete(c.recent, sequence)
		waiting <- recent
	}
	c.deciding[sequence] = waiting
	c.mutex.Unlock()
	defer func() {
		c.mutex.Lock()
		delete(c.deciding, sequence)
		c.mutex.Unlock()
	}()
	for {
		select {
		case message := <-waiting:
			event, err := decodeEvent(message.Data, message.Header.Get("Nats-Sequence"))
			if err == nil && event.Type == "job.refused" {
				err = &Refused{Code: event.text("code"), Reason: event.text("reason"), IngressSequence: sequence}
			}
			if err == nil && event.Type == "submissions.rate_limited" {
				what := "messages"
				if event.text("verb") != "" {
					what = "measurements"
				}
				reason := fmt.Sprintf("more than %v %s a second; send fewer", event.Data["max_rate"], what)
				err = &Refused{Code: "too_fast", Reason: reason, IngressSequence: sequence}
			}
			return event, nil, err
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, nil, ctx.Err()
			}
			reason := fmt.Sprintf("message %d is stored, but nothing has decided on it yet: is admission running?", sequence)
			return nil, nil, &TimedOut{Reason: reason, Stored: true}
		case <-time.After(silence):
			if job == "" {
				continue
			}
			if known := c.known(ctx, job, sha256, sequence); known != nil {
				return nil, known, nil
			}
		}
	}
}

type row struct {
	Phase           string  `json:"phase"`
	Reason          string  `json:"reason"`
	SHA256          string  `json:"sha256"`
	IngressSequence uint64  `json:"ingress_sequence"`
	FirstStartedAt  *string `json:"first_started_at"`
}

func (c *Client) known(ctx context.Context, job, sha256 string, sequence uint64) *Submission {
	var found row
	if err := c.Query(ctx, "job", map[string]string{"job": job}, &found); err != nil || found.SHA256 != sha256 {
		return nil
	}
	existing := found.IngressSequence != sequence
	return &Submission{Job: job, IngressSequence: found.IngressSequence, State: "admitted", Existing: existing, SHA256: sha256}
}

// follow waits for the start or the end; it asks now and then, as a status message can be lost.
func (c *Client) follow(ctx context.Context, submission *Submission, events *Events, wait Wait) (*Submission, error) {
	ask := submission.Existing
	for {
		if !ask {
			select {
			case event, open := <-events.C:
				if !open {
					ask = true
					continue
				}
				if event.IsEnd() {
					submission.State, submission.Reason = strings.TrimPrefix(event.Type, "job."), event.text("reason")
					return submission, nil
				}
				if wait == Started && event.Type == "partition.started" {
					submission.State = "started"
					return submission, nil
				}
				continue
			case <-time.After(silence):
			case <-ctx.Done():
				if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
					return nil, ctx.Err()
				}
				return nil, &TimedOut{Reason: submission.Job + " is not so far yet", Stored: true}
			}
		}
		ask = false
		var found row
		if err := c.Query(ctx, "job", map[string]string{"job": submission.Job}, &found); err != nil {
			continue
		}
		switch {
		case found.Phase == "completed" || found.Phase == "failed" || found.Phase == "cancelled":
			submission.State, submission.Reason = found.Phase, found.Reason
			return submission, nil
		case wait == Started && found.FirstStartedAt != nil:
			submission.State = "started"
			return submission, nil
		}
	}
}
