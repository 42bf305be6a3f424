//! Wrong usage as one line: what, where, and the mend. Pure.

/// The error that clap would print on a screenful.
pub fn one_line(error: &clap::Error) -> String {
    let rendered = error.render().to_string();
    let body = rendered.strip_prefix("error: ").unwrap_or(&rendered);
    let said: Vec<&str> = body
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .collect();
    let mut text = String::new();
    for line in said {
        let line = line.strip_prefix("tip: ").unwrap_or(line);
        if !text.is_empty() {
            // A list that belongs to the line before, or a sentence of its own.
            text.push_str(if text.ends_with(':') || line.starts_with('[') || line.starts_with('<') {
                " "
            } else {
                "; "
            });
        }
        text.push_str(line);
    }
    match command(body) {
        Some(command) => format!("{text}; `{command} --help` shows what it takes"),
        None => format!("{text}; `--help` shows what it takes"),
    }
}

/// The command that was meant, as far as it was understood and told: `halfopen run`.
fn command(rendered: &str) -> Option<String> {
    let usage = rendered.lines().find_map(|line| line.strip_prefix("Usage:"))?;
    let plain = |w: &&str| w.chars().all(|c| c.is_ascii_lowercase());
    // The file of the program may be called otherwise.
    let words = usage.split_whitespace().skip(1).take_while(plain);
    Some(std::iter::once("halfopen").chain(words).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::super::args::Cli;
    use super::*;
    use clap::Parser;

    #[track_caller]
    fn said(args: &[&str]) -> String {
        let all: Vec<&str> = std::iter::once("halfopen").chain(args.iter().copied()).collect();
        let line = one_line(&Cli::try_parse_from(all).unwrap_err());
        assert_eq!(line.lines().count(), 1, "{line}");
        line
    }

    #[test]
    fn wrong_usage_is_one_line_with_what_where_and_mend() {
        let cases: [(&[&str], &[&str]); 7] = [
            (&["run", "a.toml", "--trails", "3"], &["'--trails'", "'--trials'", "`halfopen run --help`"]),
            (&["run", "a.toml", "--lab", "moon"], &["'moon'", "--lab", "netns, docker, vm"]),
            (&["run"], &["<SCENARIO>", "not provided"]),
            (&["run", "a.toml", "--max-time", "5"], &["'5'", "--max-time"]),
            (&["run", "a.toml", "--trials"], &["--trials", "a value is required"]),
            (&["runn"], &["'runn'", "`halfopen --help`"]),
            (&["vm", "exec"], &["<ARGV>", "`halfopen vm exec --help`"]),
        ];
        for (args, words) in cases {
            let line = said(args);
            for word in words {
                assert!(line.contains(word), "`{word}` is not in: {line}");
            }
        }
    }
}
