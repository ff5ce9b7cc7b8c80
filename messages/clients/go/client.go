// Package client submits jobs to a Dormouse cluster and follows them, over NATS.
//
// A message is published with a reply subject; the broker's acknowledgement means that it is stored.
// What became of it comes on the status subjects, to which the client listens before it publishes.
// If the connection is lost in between, the message is sent again: the job's name makes that safe.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Decisions that came before the acknowledgement of their message are kept, so many.
const recentLimit = 20_000

// Messages that are on their way to the broker at once: more would wait there.
const atOnce = 256

// Bytes of a message that a tenant's account may send. A broker closes the connection of what is longer,
// and does not say before that an account may send less than others.
const maxMessage = 2 << 20

// The broker's words where as many of the tenant's messages wait to be recorded as may, and how long
// until one is sent again.
const (
	full      = "maximum messages per subject"
	fullPause = 50 * time.Millisecond
)

// Until a question is asked again, where as many of the tenant's wait as may.
const busyPause = 100 * time.Millisecond

var denied = regexp.MustCompile(`(?i)permissions violation for (?:publish|subscription) to "([^"]+)"`)

// What may become of a message.
var decisions = []string{"job.*", "service.measured", "submissions.rate_limited"}

var nameForm = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// Client is a tenant's connection. It may be used by many goroutines.
type Client struct {
	tenant   string
	prefix   string
	encoding Encoding
	timeout  time.Duration
	nc       *nats.Conn
	inbox    string
	token    atomic.Uint64
	// Has a place for each message that is on its way.
	publishing chan struct{}

	// Held while the subscription to decisions is made: nobody publishes before it.
	listenMutex sync.Mutex
	listening   bool

	mutex    sync.Mutex
	pending  map[string]*asked
	deciding map[uint64]chan *nats.Msg
	recent   map[uint64]*nats.Msg
	order    []uint64
	refusals map[string]bool
}

type asked struct {
	subject string
	answer  chan answer
}

type answer struct {
	message *nats.Msg
	err     error
	again   bool
}

// Option changes how a client connects.
type Option func(*Client, *[]nats.Option)

// WithPrefix names the first token of every subject; by default "dormouse".
func WithPrefix(prefix string) Option {
	return func(c *Client, _ *[]nats.Option) { c.prefix = prefix }
}

// WithEncoding says how documents are written; by default JSON.
func WithEncoding(encoding Encoding) Option {
	return func(c *Client, _ *[]nats.Option) { c.encoding = encoding }
}

// WithTimeout bounds what has no deadline in its context; by default 10 s.
func WithTimeout(timeout time.Duration) Option {
	return func(c *Client, _ *[]nats.Option) { c.timeout = timeout }
}

// WithNATS adds options of nats.go, such as nats.UserCredentials or nats.RootCAs.
func WithNATS(options ...nats.Option) Option {
	return func(_ *Client, all *[]nats.Option) { *all = append(*all, options...) }
}

// Connect connects to the brokers, as a tenant.
func Connect(servers, tenant string, options ...Option) (*Client, error) {
	c := &Client{
		tenant: tenant, prefix: "dormouse", encoding: JSON, timeout: 10 * time.Second,
		pending: map[string]*asked{}, deciding: map[uint64]chan *nats.Msg{},
		recent: map[uint64]*nats.Msg{}, refusals: map[string]bool{},
		publishing: make(chan struct{}, atOnce),
	}
	all := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(200 * time.Millisecond)}
	for _, option := range options {
		option(c, &all)
	}
	all = append(all,
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.onError(err) }),
		nats.ReconnectHandler(func(*nats.Conn) { c.each(func(a *asked) { a.give(answer{again: true}) }) }))
	nc, err := nats.Connect(servers, all...)
	if err != nil {
		return nil, &Unavailable{fmt.Sprintf("no broker at %s: %v", servers, err)}
	}
	c.nc, c.inbox = nc, nc.NewInbox()
	if _, err := nc.Subscribe(c.inbox+".*", c.onAnswer); err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the connection.
func (c *Client) Close() { c.nc.Close() }

// Query asks about this tenant: "job", "jobs", "ledger", "tenant", "timeline". A nil request asks for all.
func (c *Client) Query(ctx context.Context, name string, request any, into any) error {
	var payload []byte
	if request != nil {
		var err error
		if payload, err = json.Marshal(request); err != nil {
			return err
		}
	}
	subject := fmt.Sprintf("%s.tenant.%s.api.%s", c.prefix, c.tenant, name)
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	for {
		message, err := c.ask(ctx, subject, payload, nil)
		if err != nil {
			return err
		}
		refused := message.Header.Get("Nats-Service-Error")
		if refused == "" {
			return json.Unmarshal(message.Data, into)
		}
		code, reason, _ := strings.Cut(refused, ": ")
		why := &Refused{Code: code, Reason: reason}
		if code != "busy" {
			return why
		}
		select {
		case <-time.After(busyPause):
		case <-ctx.Done():
			return why
		}
	}
}

// publish returns the ingress sequence of what the broker has stored.
func (c *Client) publish(ctx context.Context, verb string, payload []byte, traceparent string) (uint64, error) {
	if most := min(c.nc.MaxPayload(), maxMessage); int64(len(payload)) > most {
		reason := fmt.Sprintf("the document has %d bytes, more than the %d that the broker takes", len(payload), most)
		return 0, &Refused{Code: "too_large", Reason: reason}
	}
	header := nats.Header{"Content-Type": {c.encoding.contentType()}}
	if traceparent != "" {
		header["traceparent"] = []string{traceparent}
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	subject := fmt.Sprintf("%s.in.%s.%s", c.prefix, c.tenant, verb)
	select {
	case c.publishing <- struct{}{}:
		defer func() { <-c.publishing }()
	case <-ctx.Done():
		return 0, &TimedOut{Reason: "too many messages are on their way to the broker"}
	}
	for {
		message, err := c.ask(ctx, subject, payload, header)
		if err != nil {
			return 0, err
		}
		var ack struct {
			Seq   uint64
			Error *struct{ Description string }
		}
		if err := json.Unmarshal(message.Data, &ack); err != nil {
			return 0, err
		}
		if ack.Error == nil {
			return ack.Seq, nil
		}
		why := &Unavailable{"the broker has not stored it: " + ack.Error.Description}
		if !strings.Contains(ack.Error.Description, full) {
			return 0, why
		}
		select {
		case <-time.After(fullPause):
		case <-ctx.Done():
			return 0, why
		}
	}
}

// ask sends a request, again when the connection was lost meanwhile, and waits for its answer.
func (c *Client) ask(ctx context.Context, subject string, payload []byte, header nats.Header) (*nats.Msg, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	for {
		token := c.inbox + "." + strconv.FormatUint(c.token.Add(1), 36)
		waiting := &asked{subject, make(chan answer, 1)}
		c.mutex.Lock()
		c.pending[token] = waiting
		c.mutex.Unlock()
		message := &nats.Msg{Subject: subject, Reply: token, Data: payload, Header: header}
		err := c.nc.PublishMsg(message)
		var got answer
		if err == nil {
			select {
			case got = <-waiting.answer:
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		c.mutex.Lock()
		delete(c.pending, token)
		c.mutex.Unlock()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return nil, &TimedOut{Reason: "no answer on " + subject + " in time"}
		case errors.Is(err, nats.ErrConnectionClosed):
			return nil, &Unavailable{"the connection is closed"}
		case err != nil:
			return nil, err
		case got.err != nil:
			return nil, got.err
		case got.again:
			// Nobody knows whether it arrived.
			continue
		case got.message.Header.Get("Status") == "503":
			return nil, &Unavailable{"nothing answers on " + subject + ": is `dormouse up` running, and under this prefix?"}
		}
		return got.message, nil
	}
}

func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.timeout)
}

func (a *asked) give(got answer) {
	select {
	case a.answer <- got:
	default:
	}
}

func (c *Client) each(do func(*asked)) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, waiting := range c.pending {
		do(waiting)
	}
}

func (c *Client) onAnswer(message *nats.Msg) {
	c.mutex.Lock()
	waiting := c.pending[message.Subject]
	c.mutex.Unlock()
	if waiting != nil {
		waiting.give(answer{message: message})
	}
}

// onError hears of denials: they have no answer, but are reported on the connection.
func (c *Client) onError(err error) {
	found := denied.FindStringSubmatch(err.Error())
	if found == nil {
		return
	}
	c.mutex.Lock()
	c.refusals[found[1]] = true
	c.mutex.Unlock()
	c.each(func(waiting *asked) {
		if waiting.subject == found[1] {
			waiting.give(answer{err: &Denied{found[1]}})
		}
	})
}

func (c *Client) isDenied(subject string) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.refusals[subject]
}

// listen listens to what becomes of this tenant's messages, once for all.
func (c *Client) listen() error {
	c.listenMutex.Lock()
	defer c.listenMutex.Unlock()
	if c.listening {
		return nil
	}
	subjects := []string{}
	for _, decision := range decisions {
		subject := fmt.Sprintf("%s.status.%s._in.*.%s", c.prefix, c.tenant, decision)
		if _, err := c.nc.Subscribe(subject, c.onDecision); err != nil {
			return err
		}
		subjects = append(subjects, subject)
	}
	if err := c.nc.FlushTimeout(c.timeout); err != nil {
		return &Unavailable{"the broker does not answer: " + err.Error()}
	}
	for _, subject := range subjects {
		if c.isDenied(subject) {
			return &Denied{subject}
		}
	}
	c.listening = true
	return nil
}

func (c *Client) onDecision(message *nats.Msg) {
	tokens := strings.Split(message.Subject, ".")
	sequence, err := strconv.ParseUint(tokens[len(tokens)-3], 10, 64)
	if err != nil {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if waiting, ok := c.deciding[sequence]; ok {
		select {
		case waiting <- message:
		default:
		}
		return
	}
	c.recent[sequence] = message
	c.order = append(c.order, sequence)
	if len(c.order) > recentLimit {
		delete(c.recent, c.order[0])
		c.order = c.order[1:]
	}
}
