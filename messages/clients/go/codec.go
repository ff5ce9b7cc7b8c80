package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"
)

// Encoding is how documents are written.
type Encoding string

// The two encodings of documents.
const (
	JSON        Encoding = "json"
	MessagePack Encoding = "msgpack"
)

func (e Encoding) contentType() string { return "application/" + string(e) }

// encode returns the canonical bytes of a document: keys sorted, nothing added. They are the same in
// every language's client, so that a submission that is sent again is known by its hash.
func encode(document map[string]any, encoding Encoding) ([]byte, error) {
	var buffer bytes.Buffer
	if encoding == MessagePack {
		encoder := msgpack.NewEncoder(&buffer)
		encoder.SetSortMapKeys(true)
		encoder.UseCompactInts(true)
		err := encoder.Encode(document)
		return buffer.Bytes(), err
	}
	err := write(&buffer, document)
	return buffer.Bytes(), err
}

// plain turns any value that encoding/json can write into maps, slices, text and numbers.
func plain(document any) (map[string]any, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var read map[string]any
	if err := decoder.Decode(&read); err != nil {
		return nil, fmt.Errorf("a document must be an object: %w", err)
	}
	return numbers(read).(map[string]any), nil
}

func numbers(value any) any {
	switch value := value.(type) {
	case json.Number:
		if whole, err := strconv.ParseInt(value.String(), 10, 64); err == nil {
			return whole
		}
		if whole, err := strconv.ParseUint(value.String(), 10, 64); err == nil {
			return whole
		}
		float, _ := value.Float64()
		return float
	case map[string]any:
		for key, item := range value {
			value[key] = numbers(item)
		}
	case []any:
		for index, item := range value {
			value[index] = numbers(item)
		}
	}
	return value
}

// write writes JSON; encoding/json would escape what other languages write as it is.
func write(out *bytes.Buffer, value any) error {
	switch value := value.(type) {
	case map[string]any:
		keys := make([]string, 0, len(value))
		for key := range value {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		out.WriteByte('{')
		for index, key := range keys {
			if index > 0 {
				out.WriteByte(',')
			}
			writeText(out, key)
			out.WriteByte(':')
			if err := write(out, value[key]); err != nil {
				return err
			}
		}
		out.WriteByte('}')
	case []any:
		out.WriteByte('[')
		for index, item := range value {
			if index > 0 {
				out.WriteByte(',')
			}
			if err := write(out, item); err != nil {
				return err
			}
		}
		out.WriteByte(']')
	case string:
		writeText(out, value)
	default:
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		out.Write(text)
	}
	return nil
}

var escapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\f': `\f`, '\b': `\b`}

func writeText(out *bytes.Buffer, text string) {
	out.WriteByte('"')
	for _, c := range text {
		if escape, ok := escapes[c]; ok {
			out.WriteString(escape)
		} else if c < 0x20 {
			fmt.Fprintf(out, `\u%04x`, c)
		} else if c == utf8.RuneError {
			out.WriteString("\uFFFD")
		} else {
			out.WriteRune(c)
		}
	}
	out.WriteByte('"')
}

// Event is something that happened to a job. Unknown types and fields may come: pass over them.
type Event struct {
	// Type is such as "job.completed".
	Type    string
	Version int
	// ID is the same for the same event.
	ID string
	// Subject is what it is about: tenant/name, as a rule.
	Subject string
	Time    time.Time
	// Sequence is its place on the cluster's log; 0 where it is not known.
	Sequence    uint64
	Traceparent string
	Data        map[string]any
}

// IsEnd says whether the job is over with it.
func (e *Event) IsEnd() bool {
	return e.Type == "job.completed" || e.Type == "job.failed" || e.Type == "job.cancelled"
}

func (e *Event) text(field string) string {
	text, _ := e.Data[field].(string)
	return text
}

func decodeEvent(payload []byte, sequence string) (*Event, error) {
	var read struct {
		ID          string         `msgpack:"id"`
		Type        string         `msgpack:"type"`
		Subject     string         `msgpack:"subject"`
		Time        string         `msgpack:"time"`
		Traceparent string         `msgpack:"traceparent"`
		Data        map[string]any `msgpack:"data"`
	}
	decoder := msgpack.NewDecoder(bytes.NewReader(payload))
	decoder.UseLooseInterfaceDecoding(true)
	if err := decoder.Decode(&read); err != nil {
		return nil, err
	}
	cut := strings.LastIndex(read.Type, ".v")
	if cut < 0 {
		return nil, errors.New("an event without a version: " + read.Type)
	}
	version, _ := strconv.Atoi(read.Type[cut+2:])
	at, _ := time.Parse(time.RFC3339Nano, read.Time)
	place, _ := strconv.ParseUint(sequence, 10, 64)
	return &Event{
		Type: strings.TrimPrefix(read.Type[:cut], "dormouse."), Version: version, ID: read.ID,
		Subject: read.Subject, Time: at, Sequence: place, Traceparent: read.Traceparent, Data: read.Data,
	}, nil
}
