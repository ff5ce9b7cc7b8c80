//! Decides how many containers each job has: DRF shares, then P2.
