//! The allowed requirements: name, extras, versions and marker, as in PEP 508. Addresses, paths, options and
//! variables are refused.

/// An installer takes such a name for a file.
const ARCHIVES: [&str; 9] = [
    ".whl", ".zip", ".tar", ".tgz", ".tbz", ".txz", ".gz", ".bz2", ".xz",
];

/// Longer ones first, as prefixes.
const COMPARISONS: [&str; 8] = ["===", "==", "~=", "!=", "<=", ">=", "<", ">"];

const VARIABLES: [&str; 12] = [
    "python_version",
    "python_full_version",
    "os_name",
    "sys_platform",
    "platform_release",
    "platform_system",
    "platform_version",
    "platform_machine",
    "platform_python_implementation",
    "implementation_name",
    "implementation_version",
    "extra",
];

/// Nested brackets.
const DEEPEST: usize = 16;

/// True for a package of an index.
pub fn is_of_an_index(requirement: &str) -> bool {
    let mut rest = Rest(requirement.trim_matches(' '));
    rest.requirement().is_some() && rest.0.is_empty()
}

struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn requirement(&mut self) -> Option<()> {
        let name = self.name()?.to_ascii_lowercase();
        if ARCHIVES.iter().any(|ending| name.ends_with(ending)) {
            return None;
        }
        if self.takes("[") && !self.takes("]") {
            self.several(|rest| rest.name().map(drop))?;
            self.needs("]")?;
        }
        if self.takes("(") {
            self.several(Self::version)?;
            self.needs(")")?;
        } else if COMPARISONS.iter().any(|it| self.0.starts_with(it)) {
            self.several(Self::version)?;
        }
        if self.takes(";") {
            self.marker(0)?;
        }
        Some(())
    }

    fn several(&mut self, one: impl Fn(&mut Self) -> Option<()>) -> Option<()> {
        one(self)?;
        while self.takes(",") {
            one(self)?;
        }
        Some(())
    }

    fn name(&mut self) -> Option<&'a str> {
        let name = self.word(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))?;
        let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        (is_end(name.chars().next()) && is_end(name.chars().next_back())).then_some(name)
    }

    fn comparison(&mut self) -> Option<()> {
        COMPARISONS.iter().find(|it| self.takes(it)).map(drop)
    }

    fn version(&mut self) -> Option<()> {
        self.comparison()?;
        let is_part =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '!');
        let version = self.word(is_part)?;
        let _ = version.ends_with('.') && self.takes("*");
        let number = version.strip_prefix('v').unwrap_or(version);
        number
            .starts_with(|c: char| c.is_ascii_digit())
            .then_some(())
    }

    fn marker(&mut self, depth: usize) -> Option<()> {
        loop {
            if self.takes("(") {
                if depth == DEEPEST {
                    return None;
                }
                self.marker(depth + 1)?;
                self.needs(")")?;
            } else {
                let left = self.operand()?;
                self.operator()?;
                // Two literals do not depend on the node.
                (self.operand()? || left).then_some(())?;
            }
            if !self.takes_word("and") && !self.takes_word("or") {
                return Some(());
            }
        }
    }

    /// True for a variable.
    fn operand(&mut self) -> Option<bool> {
        for quote in ["'", "\""] {
            if let Some(quoted) = self.0.strip_prefix(quote) {
                let (text, rest) = quoted.split_once(quote)?;
                let is_text = |c: char| c.is_ascii_alphanumeric() || " ._-+*!#".contains(c);
                self.0 = rest.trim_start_matches(' ');
                return text.chars().all(is_text).then_some(false);
            }
        }
        let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_')?;
        VARIABLES.contains(&name).then_some(true)
    }

    fn operator(&mut self) -> Option<()> {
        let negated = self.takes_word("not");
        if self.takes_word("in") {
            return Some(());
        }
        self.comparison().filter(|()| !negated)
    }

    fn word(&mut self, is_part: impl Fn(char) -> bool) -> Option<&'a str> {
        let end = self.0.find(|c| !is_part(c)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest.trim_start_matches(' ');
        (!word.is_empty()).then_some(word)
    }

    fn takes(&mut self, text: &str) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.map_or(self.0, |rest| rest.trim_start_matches(' '));
        rest.is_some()
    }

    fn needs(&mut self, text: &str) -> Option<()> {
        self.takes(text).then_some(())
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let follows = self.0.strip_prefix(word);
        let is_over = follows
            .is_some_and(|it| !it.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'));
        is_over && self.takes(word)
    }
}
