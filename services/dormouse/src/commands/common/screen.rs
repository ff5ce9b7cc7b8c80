//! Shows refreshed output on the terminal's alternate screen.

use std::io::{IsTerminal as _, Read as _, Write as _};

use anyhow::Context as _;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc::{self, UnboundedReceiver};

const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// Alternate screen and unbuffered keys, until dropped.
pub struct Screen {
    before: Option<Termios>,
    keys: UnboundedReceiver<u8>,
}

impl Screen {
    /// Enters the mode.
    ///
    /// # Errors
    /// If the terminal cannot be written to.
    pub fn enter() -> anyhow::Result<Self> {
        let (pressed, keys) = mpsc::unbounded_channel();
        let before = if std::io::stdin().is_terminal() {
            Some(unbuffered().context("the terminal")?)
        } else {
            None
        };
        if before.is_some() {
            // A read of a terminal cannot be interrupted: the thread ends with the process.
            std::thread::spawn(move || {
                let mut key = [0];
                while matches!(std::io::stdin().read(&mut key), Ok(1)) {
                    if pressed.send(key[0]).is_err() {
                        return;
                    }
                }
            });
        }
        let screen = Self { before, keys };
        said(ENTER)?;
        Ok(screen)
    }

    /// Clears the screen.
    ///
    /// # Errors
    /// If the terminal cannot be written to.
    pub fn clear(&self) -> anyhow::Result<()> {
        said(CLEAR)
    }

    /// Returns when `q` is pressed; never if the input is no terminal.
    pub async fn quit(&mut self) {
        while let Some(key) = self.keys.recv().await {
            if matches!(key, b'q' | b'Q') {
                return;
            }
        }
        std::future::pending().await
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
        let _ = said(LEAVE);
    }
}

fn said(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// `^C` remains a signal.
fn unbuffered() -> rustix::io::Result<Termios> {
    let before = tcgetattr(stdin())?;
    let mut now = before.clone();
    now.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
    tcsetattr(stdin(), OptionalActions::Now, &now)?;
    Ok(before)
}

/// Cuts a text to the terminal's size.
pub fn fitting(text: &str) -> String {
    let size = tcgetwinsize(stdout()).ok().filter(|it| it.ws_row > 1);
    match size {
        Some(size) => cut(text, size.ws_row.into(), size.ws_col.max(1).into()),
        None => text.to_owned(),
    }
}

fn cut(text: &str, rows: usize, columns: usize) -> String {
    let mut left = rows.saturating_sub(1);
    let fits = |line: &&str| {
        let needs = width(line).div_ceil(columns).max(1);
        let fits = needs <= left;
        left = left.saturating_sub(needs);
        fits
    };
    text.lines().take_while(fits).collect::<Vec<_>>().join("\n")
}

/// The width without colour sequences.
fn width(line: &str) -> usize {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().map_or(0, |part| part.chars().count());
    let rest = parts.map(|part| part.split_once('m').map_or(part, |(_, rest)| rest));
    first + rest.map(|part| part.chars().count()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_holds_the_first_lines() {
        assert_eq!(cut("a\nb\nc", 3, 80), "a\nb");
        assert_eq!(cut("12345678901\nb\nc", 4, 10), "12345678901\nb");
        let coloured = "\u{1b}[32m1234567890\u{1b}[0m\nb\nc";
        assert_eq!(cut(coloured, 3, 10).lines().count(), 2);
    }
}
