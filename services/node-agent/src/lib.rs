//! Runs the containers that the log asks of one node, and reports what happened.
