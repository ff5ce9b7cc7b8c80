"""Reads a line of JSON each, as CloudEvents' own library for Python reads a post; prints `type id` of each."""

import sys

from cloudevents.core.bindings.http import HTTPMessage, from_structured_event

with open(sys.argv[1], "rb") as lines:
    for line in lines:
        headers = {"content-type": "application/cloudevents+json; charset=utf-8"}
        event = from_structured_event(HTTPMessage(headers=headers, body=line))
        assert event.get_specversion() == "1.0" and event.get_data(), line
        print(event.get_type(), event.get_id(), event.get_extension("sequence"))
