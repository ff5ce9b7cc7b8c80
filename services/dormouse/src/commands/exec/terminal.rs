//! This process's terminal: its size, and every key as it is pressed.

use anyhow::Context as _;
use dormouse_node_agent::exec::attached::{Size, Terminal};
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Where none says its size.
const USUAL: Size = Size {
    rows: 24,
    columns: 80,
};

/// Its size now.
pub fn size() -> Size {
    let size = tcgetwinsize(stdin()).ok().filter(|size| size.ws_row > 0);
    size.map_or(USUAL, |size| Size {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}

/// As the program is told of it.
pub fn this() -> Terminal {
    Terminal {
        size: size(),
        kind: std::env::var("TERM").ok(),
    }
}

/// While it lives, keys come as they are pressed, and nothing is echoed here: the program's own
/// terminal does that.
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// From now on.
    ///
    /// # Errors
    /// When the standard input is no terminal.
    pub fn begin() -> anyhow::Result<Self> {
        let before = tcgetattr(stdin()).context("the terminal")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw).context("the terminal")?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}
