//! Decides which job's containers take which slots, and who is a member.
