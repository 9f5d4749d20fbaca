//! `tidemill completions` and `tidemill man`: what shells and readers of manuals know of the command.

use crate::{exit, say, settings};
use clap_complete::Shell;
use std::io::{Write, stdout};
use std::path::Path;

/// Prints the script that completes commands in a shell; the exit code.
pub fn completions(shell: Shell) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut settings::command(), "tidemill", &mut script);
    print(&script)
}

/// Prints the manual page, or writes those of all commands to a folder; the exit code.
pub fn man(folder: Option<&Path>) -> u8 {
    let command = settings::command();
    let Some(folder) = folder else {
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(command).render(&mut page);
        rendered.expect("memory takes what is written");
        return print(&page);
    };
    match clap_mangen::generate_to(command, folder) {
        Ok(()) => exit::SUCCESS,
        Err(error) => {
            say::error(&format!("{} takes no pages: {error}", folder.display()));
            exit::RUN
        }
    }
}

/// Prints bytes. A closed pipe is ignored.
fn print(bytes: &[u8]) -> u8 {
    let mut out = stdout().lock();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
    exit::SUCCESS
}
