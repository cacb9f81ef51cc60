//! Credentials for an object store, from where the AWS tools take them.
//!
//! In:  variables, the profile, and the services for credentials of containers and of EC2 instances (IMDS version 2). Out:
//! an access key with its secret, and until when it is valid.
//! Not here: profiles that sign in elsewhere (SSO, roles, `credential_process`), since they need other services.
//!
//! The order and the names of the variables are those of the AWS SDKs and Tools Reference Guide, "Standardized credential
//! providers". Secrets are never in an error and never printed.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use rusty_s3::Credentials;
use serde::Deserialize;
use url::{Host, Url};

use super::environment::{CredentialsError, Environment};
use super::profile::Profile;
use crate::os::http::Client;

/// Time for all requests to a service for credentials.
const LIMIT: Duration = Duration::from_secs(2);
const MOST_BYTES: u64 = 64 << 10;
/// The service of EC2 instances, and that of ECS tasks.
const INSTANCE: &str = "http://169.254.169.254";
const CONTAINER: &str = "http://169.254.170.2";

/// Credentials, and when they expire.
pub(super) struct Found {
    pub(super) credentials: Credentials,
    pub(super) expires: Option<Timestamp>,
}

impl Found {
    fn lasting(key: &str, secret: &str, token: Option<&str>) -> Self {
        let credentials = match token {
            Some(token) => Credentials::new_with_token(key, secret, token),
            None => Credentials::new(key, secret),
        };
        Self { credentials, expires: None }
    }
}

/// The first credentials that are found.
pub(super) fn find(environment: &Environment, profile: &Profile) -> Result<Found, CredentialsError> {
    const KEY: &str = "AWS_ACCESS_KEY_ID";
    const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
    match (environment.get(KEY), environment.get(SECRET)) {
        (Some(key), Some(secret)) => {
            return Ok(Found::lasting(key, secret, environment.get("AWS_SESSION_TOKEN")));
        }
        (Some(_), None) => return Err(CredentialsError::Incomplete { set: KEY, missing: SECRET }),
        (None, Some(_)) => return Err(CredentialsError::Incomplete { set: SECRET, missing: KEY }),
        (None, None) => {}
    }
    if let (Some(key), Some(secret)) =
        (profile.get("aws_access_key_id"), profile.get("aws_secret_access_key"))
    {
        return Ok(Found::lasting(key, secret, profile.get("aws_session_token")));
    }
    if let Some(name) = environment.get("AWS_PROFILE") {
        return Err(CredentialsError::ProfileWithoutKeys { name: name.to_owned() });
    }
    let found = match of_container(environment)? {
        None => {
            of_instance(environment).ok_or_else(|| match environment.get("AWS_WEB_IDENTITY_TOKEN_FILE") {
                Some(_) => CredentialsError::WebIdentity,
                None => CredentialsError::Missing,
            })?
        }
        Some(found) => found,
    };
    match found.expires {
        Some(at) if at <= Timestamp::now() => Err(CredentialsError::Expired { at }),
        _ => Ok(found),
    }
}

/// Credentials of an ECS task or an EKS pod; `None` outside of them.
fn of_container(environment: &Environment) -> Result<Option<Found>, CredentialsError> {
    let url = match (
        environment.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
        environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"),
    ) {
        (Some(path), _) => format!("{CONTAINER}{path}"),
        (None, Some(url)) => service_address(url).ok_or(CredentialsError::ContainerAddress)?,
        (None, None) => return Ok(None),
    };
    let has_tls = url.starts_with("https:");
    let client = if has_tls { Client::service } else { Client::link_local }(LIMIT, MOST_BYTES);
    // The token in the file is renewed from time to time.
    let token = match environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").map(PathBuf::from) {
        None => environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(str::to_owned),
        Some(path) => match std::fs::read_to_string(&path) {
            Ok(token) => Some(token.trim().to_owned()),
            Err(source) => return Err(CredentialsError::Unreadable { path, source }),
        },
    };
    let headers: Vec<_> = token.iter().map(|token| ("Authorization", token.as_str())).collect();
    answer(&client, &url, &headers).map(Some).ok_or(CredentialsError::Container)
}

/// An address to which a token may be sent: any with TLS; without, loopback, link-local, and the address of EKS.
fn service_address(url: &str) -> Option<String> {
    let mut url = Url::parse(url).ok()?;
    if url.scheme() == "http" && url.host_str() == Some("localhost") {
        url.set_host(Some("127.0.0.1")).ok()?;
    }
    let is_allowed = match url.host()? {
        _ if url.scheme() == "https" => true,
        _ if url.scheme() != "http" => false,
        Host::Ipv4(v4) => v4.is_loopback() || v4.is_link_local(),
        Host::Ipv6(v6) => v6.is_loopback() || v6.segments() == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23],
        Host::Domain(_) => false,
    };
    is_allowed.then(|| url.to_string())
}

/// Credentials of the role of an EC2 instance.
fn of_instance(environment: &Environment) -> Option<Found> {
    if environment.get("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return None;
    }
    let service =
        environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or(INSTANCE).trim_end_matches('/');
    let client = Client::link_local(LIMIT, MOST_BYTES);
    let text = |answer: Result<(u16, Vec<u8>), _>| match answer {
        Ok((200, body)) => String::from_utf8(body).ok(),
        _ => None,
    };
    let token = text(
        client.put(&format!("{service}/latest/api/token"), &[("X-aws-ec2-metadata-token-ttl-seconds", "60")]),
    )?;
    let headers = [("X-aws-ec2-metadata-token", token.trim())];
    let roles = format!("{service}/latest/meta-data/iam/security-credentials/");
    let role = text(client.get(&roles, &headers))?;
    answer(&client, &format!("{roles}{}", role.lines().next()?.trim()), &headers)
}

fn answer(client: &Client, url: &str, headers: &[(&str, &str)]) -> Option<Found> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Answer {
        access_key_id: String,
        secret_access_key: String,
        token: String,
        expiration: Option<String>,
    }
    let Ok((200, body)) = client.get(url, headers) else { return None };
    let answer: Answer = serde_json::from_slice(&body).ok()?;
    let found = Found::lasting(&answer.access_key_id, &answer.secret_access_key, Some(&answer.token));
    Some(Found { expires: answer.expiration.and_then(|at| at.parse().ok()), ..found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_sent_to_this_machine_or_with_tls() {
        for (url, address) in [
            ("http://169.254.170.2/v2/x", Some("http://169.254.170.2/v2/x")),
            ("http://[fd00:ec2::23]/v1/x", Some("http://[fd00:ec2::23]/v1/x")),
            ("http://[::1]:80/x", Some("http://[::1]/x")),
            ("http://localhost:51679/x", Some("http://127.0.0.1:51679/x")),
            ("https://credentials.example.org/x", Some("https://credentials.example.org/x")),
            ("http://credentials.example.org/x", None),
            ("http://10.0.0.1/x", None),
            ("ftp://localhost/x", None),
        ] {
            assert_eq!(service_address(url).as_deref(), address, "{url}");
        }
    }
}
