//! `tidemill new`.

use crate::arguments::NewArguments;
use crate::exit;
use crate::loader::Loader;
use crate::say;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Creates a folder with an application; the exit code.
pub fn new<L: Loader>(arguments: &NewArguments, loader: &L) -> u8 {
    let folder = &arguments.folder;
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if !is_name(&name) {
        say::error(&format!(
            "'{}' ends in no name for an application; use letters, digits, - and _, such as bank",
            folder.display()
        ));
        return exit::USAGE;
    }
    let files = loader.template(&name, arguments.template);
    if let Err(error) = create(folder, &files) {
        let (reason, code) = match error.kind() {
            io::ErrorKind::AlreadyExists => ("it exists already; choose another name".to_owned(), exit::USAGE),
            _ => (error.to_string(), exit::RUN),
        };
        say::error(&format!("{} cannot be created: {reason}", folder.display()));
        return code;
    }
    let first = files.first().map(|(path, _)| folder.join(path)).unwrap_or_default();
    let names: Vec<String> = files.iter().map(|(path, _)| path.display().to_string()).collect();
    let (shown, first) = (folder.display(), first.display());
    say::err(&format!("created {shown}: {}\n\n  tidemill run {first}\n  pytest {shown}", names.join(", ")));
    exit::SUCCESS
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_alphabetic()) && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

/// Creates the files of a project, and changes none that is there.
fn create(folder: &Path, files: &[(PathBuf, String)]) -> io::Result<()> {
    fs::create_dir(folder)?;
    files.iter().try_for_each(|(path, text)| fs::write(folder.join(path), text))
}
