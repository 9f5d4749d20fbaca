//! Refuses the path of a sink that asks for more than one file: a sink writes one, whose name is its path as it is.

use crate::Named;
use tidemill_io::SinkConnection;

/// Checks that no sink has a placeholder such as `{at:%Y}` in its path; which has, as a sentence.
pub fn check_paths(sinks: &[Named<dyn SinkConnection>]) -> Result<(), String> {
    for Named { name, connection } in sinks {
        let path = connection.path().unwrap_or_default();
        if let Some(placeholder) = placeholder(path) {
            return Err(format!(
                "{name} would write one file named {path}: {placeholder} stands for nothing; give a path without braces"
            ));
        }
    }
    Ok(())
}

/// Returns the first part of a path in braces.
fn placeholder(path: &str) -> Option<&str> {
    let end = path.find('}')? + 1;
    let start = path[..end].rfind('{')?;
    Some(&path[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WriteJsonl;

    fn refused(path: &str) -> Option<String> {
        let connection = WriteJsonl { path: path.into(), compression: None };
        check_paths(&[Named { name: "sink 'out'".into(), connection: &connection as &dyn SinkConnection }]).err()
    }

    #[test]
    fn a_path_in_parts_is_refused() {
        for (path, placeholder) in [
            ("out/{at:%Y}.jsonl", "{at:%Y}"),
            ("{}", "{}"),
            ("a{kind}b{at}.jsonl", "{kind}"),
            ("{{x}}/out.jsonl", "{x}"),
            ("{at:%Y/%m}/out.jsonl", "{at:%Y/%m}"),
        ] {
            let said = refused(path).unwrap_or_else(|| panic!("{path} is refused"));
            assert!(said.starts_with("sink 'out' would write") && said.contains(&format!(" {placeholder} ")), "{said}");
        }
    }

    #[test]
    fn a_name_with_a_brace_is_a_name() {
        assert_eq!(refused("out.jsonl"), None);
        assert_eq!(refused("a}b.jsonl"), None);
        assert_eq!(refused("a{b.jsonl"), None);
        assert_eq!(refused("100%Y.jsonl"), None);
        assert_eq!(refused("-"), None);
    }
}
