//! `credential_process`: a program that prints credentials as JSON.
//!
//! Its command is given to `sh -c`, as AWS' own tools do. Standard error stays the server's, so
//! that a person reads what it says there; nothing of its output is shown.

use std::{
    io::Read,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use object_store::aws::AwsCredential;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::{task::spawn_blocking, time::timeout};

use super::{
    CredentialError, Found, Lifetime, Whose,
    limits::{PROCESS_TIMEOUT, TOKEN_BYTES_MAX},
    parse_time,
    profile::ProcessCommand,
};

/// Version of the output's form, the only one there is.
const VERSION: u64 = 1;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    version: u64,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

/// Runs the program of a profile.
pub(super) async fn credentials(
    profile: &str,
    ProcessCommand(command): ProcessCommand,
) -> Result<Found, CredentialError> {
    let failed = |text: String| {
        CredentialError::Unavailable(format!("credential_process of profile {profile}: {text}"))
    };
    let mut child = Command::new("sh")
        .args(["-c", &command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // So that children of the shell can be ended with it.
        .process_group(0)
        .spawn()
        .map_err(|error| failed(format!("cannot start sh: {error}")))?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let running = spawn_blocking(move || output(&mut child));
    let Ok(ended) = timeout(PROCESS_TIMEOUT, running).await else {
        // The task ends with it, and takes the exit status.
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
        return Err(failed(format!("it timed out after {PROCESS_TIMEOUT:?}")));
    };
    let printed = ended.map_err(|_| failed("the runtime has stopped".into()))?.map_err(failed)?;
    found(&printed).map_err(failed)
}

/// Reads the output and takes the exit status.
fn output(child: &mut Child) -> Result<String, String> {
    let mut printed = String::new();
    let stdout = child.stdout.take().ok_or("no output")?;
    let read = stdout.take(TOKEN_BYTES_MAX + 1).read_to_string(&mut printed);
    let is_long = TOKEN_BYTES_MAX < printed.len() as u64;
    let status = child.wait().map_err(|error| error.to_string())?;
    match read {
        _ if is_long => Err(format!("it printed more than {TOKEN_BYTES_MAX} bytes")),
        _ if !status.success() => Err(format!("it ended with {status}; its stderr may say why")),
        Err(error) => Err(error.to_string()),
        Ok(_) => Ok(printed),
    }
}

fn found(printed: &str) -> Result<Found, String> {
    // The error of serde would show parts of the text.
    let printed: Printed = serde_json::from_str(printed).map_err(|error| {
        format!(
            "expected JSON with Version, AccessKeyId and SecretAccessKey, but line {} has none",
            error.line()
        )
    })?;
    if printed.version != VERSION {
        return Err(format!("Version {}: expected {VERSION}", printed.version));
    }
    let lifetime = match printed.expiration {
        None => Lifetime::Endless,
        Some(end) => Lifetime::Until(
            parse_time(&end).ok_or("Expiration: expected a time like 2027-01-01T00:00:00Z")?,
        ),
    };
    let keys = AwsCredential {
        key_id: printed.access_key_id,
        secret_key: printed.secret_access_key,
        token: printed.session_token,
    };
    Ok(Found { credentials: Whose::Keys(Arc::new(keys)), lifetime })
}
