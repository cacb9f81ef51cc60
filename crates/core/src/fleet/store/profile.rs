//! The profile files of the AWS tools.
//!
//! In:  `~/.aws/config` and `~/.aws/credentials`, or the files that the variables name. Out: the settings of one profile.
//! Not here: which of them count before variables (`credentials`, `s3`).
//!
//! The format is described in the AWS SDKs and Tools Reference Guide, "Shared config and credentials files".

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::PathBuf;

use super::environment::{CredentialsError, Environment};
use crate::os;

/// A file that is larger is not one of settings.
const MOST_BYTES: u64 = 1 << 20;

/// The settings of the profile that `AWS_PROFILE` names, or of `default`.
#[derive(Default)]
pub(super) struct Profile {
    settings: BTreeMap<String, String>,
}

impl Profile {
    pub(super) fn read(environment: &Environment) -> Result<Self, CredentialsError> {
        let named = environment.get("AWS_PROFILE");
        let name = named.unwrap_or("default");
        let home = environment.home();
        let mut found = None;
        // The file of credentials counts before the other one.
        for (variable, file) in
            [("AWS_CONFIG_FILE", "config"), ("AWS_SHARED_CREDENTIALS_FILE", "credentials")]
        {
            let below_home = || home.as_ref().map(|home| home.join(".aws").join(file));
            let named_file = environment.get(variable).map(PathBuf::from);
            let is_default = named_file.is_none();
            let Some(path) = named_file.or_else(below_home) else { continue };
            let text = match read_text(&path) {
                Ok(text) => text,
                // The home folder may be of another user, or none.
                Err(error) if is_default || error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => return Err(CredentialsError::Unreadable { path, source }),
            };
            if let Some(settings) = settings_of(&text, name) {
                found.get_or_insert_with(Self::default).settings.extend(settings);
            }
        }
        match (found, named) {
            (None, Some(name)) => Err(CredentialsError::NoProfile { name: name.to_owned() }),
            (found, _) => Ok(found.unwrap_or_default()),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.settings.get(key).map(String::as_str)
    }
}

fn read_text(path: &std::path::Path) -> io::Result<String> {
    let mut text = Vec::new();
    os::open_regular(path)?.take(MOST_BYTES).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The settings of a profile; `None` if the text does not have it. Indented lines are settings of a setting.
fn settings_of(text: &str, profile: &str) -> Option<BTreeMap<String, String>> {
    let mut found: Option<BTreeMap<String, String>> = None;
    let mut is_wanted = false;
    for line in text.lines() {
        if let Some(name) = line.trim().strip_prefix('[').and_then(|line| line.split(']').next()) {
            let name = name.trim();
            let name = name.strip_prefix("profile ").map_or(name, str::trim);
            is_wanted = name == profile;
            if is_wanted {
                found.get_or_insert_default();
            }
        } else if is_wanted
            && !line.starts_with([' ', '\t', '#', ';'])
            && let Some((key, value)) = line.split_once('=')
            && let Some(settings) = &mut found
        {
            let value = value.split(" #").next().and_then(|value| value.split(" ;").next());
            let value = value.unwrap_or_default().trim();
            settings.insert(key.trim().to_ascii_lowercase(), value.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_one_profile_without_comments_and_nested_settings() {
        let text = "# about\n[default]\nregion = eu-west-1\n\n[profile dev ]\nRegion=us-west-2 # near\ns3 =\n    addressing_style = path\n\
                    ; note\n[other]\nregion = x\n";
        let region = |profile: &str| settings_of(text, profile).map(|settings| settings["region"].clone());
        assert_eq!(region("default").as_deref(), Some("eu-west-1"));
        assert_eq!(region("dev").as_deref(), Some("us-west-2"));
        assert_eq!(
            settings_of(text, "dev").map(|settings| settings.contains_key("addressing_style")),
            Some(false)
        );
        assert_eq!(region("none"), None);
    }
}
