package client

import "fmt"

// Refused says that the cluster has refused a message or a query, for good.
type Refused struct {
	// Code is for programs.
	Code string
	// Reason says what is wrong and what to do.
	Reason string
	// IngressSequence is the refused message's; a query has none.
	IngressSequence uint64
}

func (e *Refused) Error() string { return e.Code + ": " + e.Reason }

// Unavailable says that nothing listens: no cluster runs under this prefix, or the broker is away.
type Unavailable struct{ Reason string }

func (e *Unavailable) Error() string { return e.Reason }

// TimedOut says that no answer came in time.
type TimedOut struct {
	Reason string
	// Stored says whether the broker has acknowledged the message: then it will be decided. If not,
	// nobody knows: send the same document under the same name again, which is safe.
	Stored bool
}

func (e *TimedOut) Error() string { return e.Reason }

// Denied says that the broker's permissions do not allow the subject.
type Denied struct{ Subject string }

func (e *Denied) Error() string {
	return fmt.Sprintf("the broker denies %s: use the tenant that these credentials are for", e.Subject)
}
