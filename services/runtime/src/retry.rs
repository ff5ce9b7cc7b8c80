//! Repeated attempts, a pause apart. The caller's `select!` may end them sooner.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// A patience without end: only a final error ends the attempts.
pub const UNBOUNDED: Duration = Duration::MAX;

/// Repeats `attempt` for the time `patience`; an error for which `again` is false is final.
///
/// # Errors
/// That of the last attempt.
pub async fn retry<T, E, F: Future<Output = Result<T, E>>>(
    pause: Duration,
    patience: Duration,
    mut again: impl FnMut(&E) -> bool,
    mut attempt: impl FnMut() -> F,
) -> Result<T, E> {
    let begun = Instant::now();
    loop {
        match attempt().await {
            Err(error) if begun.elapsed() < patience && again(&error) => {}
            answered => return answered,
        }
        sleep(pause).await;
    }
}

/// Repeats `attempt` until it succeeds, and hands each error to `failed`.
pub async fn forever<T, E, F: Future<Output = Result<T, E>>>(
    pause: Duration,
    mut failed: impl FnMut(E),
    mut attempt: impl FnMut() -> F,
) -> T {
    loop {
        match attempt().await {
            Ok(answer) => return answer,
            Err(error) => failed(error),
        }
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn tried(patience: Duration, succeeds_at: u32, final_at: u32) -> Result<u32, u32> {
        let mut tries = 0;
        let attempt = || {
            tries += 1;
            let is_success = tries == succeeds_at;
            std::future::ready(is_success.then_some(tries).ok_or(tries))
        };
        let again = |tries: &u32| *tries < final_at;
        retry(Duration::from_millis(1), patience, again, attempt).await
    }

    #[tokio::test]
    async fn a_success_a_final_error_and_the_end_of_the_patience_end_the_attempts() {
        assert_eq!(tried(UNBOUNDED, 3, 9).await, Ok(3));
        assert_eq!(tried(UNBOUNDED, 9, 2).await, Err(2));
        assert_eq!(tried(Duration::ZERO, 9, 9).await, Err(1));
    }
}
