//! Stores with profiles, against STS, SSO and a machine's metadata on loopback.

use std::{
    collections::HashMap,
    fs,
    path::PathBuf,
    sync::Mutex,
    time::{Duration, UNIX_EPOCH},
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::advance,
};

use super::*;
use crate::{Remote, RemoteOptions, remote::fake};

const ROLE_XML: &str = r#"<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
    <AssumeRoleResult>
      <AssumedRoleUser><Arn>a</Arn></AssumedRoleUser>
      <Credentials>
        <AccessKeyId>ROLE</AccessKeyId>
        <SecretAccessKey>hush</SecretAccessKey>
        <SessionToken>hush-token</SessionToken>
        <Expiration>2100-01-01T00:00:00Z</Expiration>
      </Credentials>
    </AssumeRoleResult>
    <ResponseMetadata/>
  </AssumeRoleResponse>"#;
const SSO_JSON: &str = r#"{"roleCredentials":{"accessKeyId":"SSO","secretAccessKey":"hush",
    "sessionToken":"hush-token","expiration":4102444800000}}"#;

const MACHINE_JSON: &str = r#"{"AccessKeyId":"MACHINE","SecretAccessKey":"hush","Token":"t",
    "Code":"Success","Expiration":"2100-01-01T00:00:00Z","LastUpdated":"2022-08-30T10:21:04Z",
    "Type":"x"}"#;

/// Server whose answers are chosen by a part of the request's first line or body.
struct Services {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Services {
    async fn start(answers: &[(&'static str, u16, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let noted = requests.clone();
        let answers: Vec<_> = answers
            .iter()
            .map(|(part, status, body)| (*part, *status, (*body).to_owned()))
            .collect();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let request = request(&mut connection).await;
                let found = answers.iter().find(|(part, ..)| request.contains(part));
                let (status, body) =
                    found.map_or((404, ""), |(_, status, body)| (*status, body.as_str()));
                let length = body.len();
                noted.lock().unwrap().push(request);
                let answer = format!(
                    "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: \
                     close\r\n\r\n{body}"
                );
                let _ = connection.write_all(answer.as_bytes()).await;
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn request(connection: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if length.map_or(0, |length| length.parse().unwrap()) <= body.len() {
                return text;
            }
        }
        if connection.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return text;
        }
    }
}

/// Home directory with AWS' files, and variables.
struct Home {
    directory: TempDir,
    variables: HashMap<String, String>,
}

impl Home {
    fn new(config: &str, variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join(".aws/sso/cache")).unwrap();
        fs::write(directory.path().join(".aws/config"), config).unwrap();
        let home = ("HOME", directory.path().to_str().unwrap());
        let variables = variables.iter().chain([&home]);
        let variables =
            variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { directory, variables }
    }

    fn token_file(&self) -> PathBuf {
        // SHA-1 of "mine".
        self.directory.path().join(".aws/sso/cache/8034c43d15bb7ef42e2cc24255217acfc5f4b2f4.json")
    }

    fn options(&self) -> RemoteOptions {
        let variables = self.variables.clone();
        RemoteOptions {
            environment: Arc::new(move |name| variables.get(name).cloned()),
            attempts_max: 1,
            ..fake::options(Handle::current())
        }
    }

    /// Opens a store of DynamoDB and reads an item of it; the answer does not matter.
    async fn call(&self, query: &str) -> Result<(), String> {
        let url = format!("aws://[t:b]/db?{query}");
        let remote = Remote::new(&url, self.options()).map_err(|error| error.to_string())?;
        let api = &remote.item().unwrap().api;
        let call = api.post("DynamoDB.GetItem", b"{}".to_vec(), Duration::from_secs(60), 1000);
        call.await.map(drop).map_err(|error| error.to_string())
    }
}

/// Key that signed a request.
fn signer(request: &str) -> &str {
    let (_, rest) = request.split_once("Credential=").unwrap_or(("", "/"));
    rest.split('/').next().unwrap()
}

fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    request.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[tokio::test]
async fn bucket_and_table_share_the_role_of_a_profile_and_its_region() {
    let services = Services::start(&[("AssumeRole", 200, ROLE_XML), ("", 200, "{}")]).await;
    let config = format!(
        "[profile dev]\nregion = eu-west-3\nrole_arn = arn:x\nsource_profile = base\n\
         endpoint_url = {}\n[profile base]\naws_access_key_id = BASE\n\
         aws_secret_access_key = hush\n",
        services.url
    );
    let home = Home::new(
        &config,
        &[("AWS_ENDPOINT_URL_STS", &services.url), ("AWS_ACCESS_KEY_ID", "NOT-ASKED")],
    );
    let remote = Remote::new("aws://[t:b]/db?profile=dev", home.options()).unwrap();
    let api = &remote.item().unwrap().api;
    for _ in 0..2 {
        api.post("DynamoDB.GetItem", b"{}".to_vec(), Duration::from_secs(60), 1000).await.unwrap();
    }
    let _ = remote.head("manifest").await;
    let requests = services.requests();
    let signers: Vec<_> = requests.iter().map(|request| signer(request)).collect();
    assert_eq!(signers, ["BASE", "ROLE", "ROLE", "ROLE"], "one call of STS for all");
    for part in
        ["Action=AssumeRole&", "RoleArn=arn%3Ax", "RoleSessionName=busload", "/eu-west-3/sts/"]
    {
        assert!(requests[0].contains(part), "{part}: {}", requests[0]);
    }
    assert!(requests[1].contains("/eu-west-3/dynamodb/"), "{}", requests[1]);
    assert!(requests[3].contains("/eu-west-3/s3/"), "{}", requests[3]);
    assert_eq!(header(&requests[3], "x-amz-security-token"), Some("hush-token"));
}

#[tokio::test]
async fn the_environment_comes_before_profiles_that_the_url_does_not_name() {
    let services = Services::start(&[("", 200, "{}")]).await;
    let config = "[default]\naws_access_key_id = FILE\naws_secret_access_key = hush\n\
                  [profile other]\naws_access_key_id = OTHER\naws_secret_access_key = hush\n";
    let endpoint = ("AWS_ENDPOINT_URL", services.url.as_str());
    let keys = [("AWS_ACCESS_KEY_ID", "ENV"), ("AWS_SECRET_ACCESS_KEY", "hush")];
    let other = ("AWS_PROFILE", "other");
    for (variables, query, expected) in [
        (&[endpoint][..], "", "FILE"),
        (&[endpoint, other], "", "OTHER"),
        (&[endpoint, keys[0], keys[1]], "", "ENV"),
        (&[endpoint, keys[0], keys[1], other], "", "ENV"),
        (&[endpoint, keys[0], keys[1]], "profile=other", "OTHER"),
        (&[endpoint, other], "profile=default", "FILE"),
    ] {
        Home::new(config, variables).call(query).await.unwrap();
        let requests = services.requests();
        assert_eq!(signer(requests.last().unwrap()), expected, "{variables:?} {query}");
    }
}

#[tokio::test]
async fn a_profile_that_is_not_there_says_where_it_was_looked_for() {
    for (variables, query) in [(&[][..], "profile=dev"), (&[("AWS_PROFILE", "dev")], "")] {
        let home = Home::new("[default]\nregion = x\n", variables);
        let error = Remote::new(&format!("s3://b?{query}"), home.options()).unwrap_err();
        let text = error.to_string();
        let config = home.directory.path().join(".aws/config");
        assert!(text.contains("there is no AWS profile dev"), "{text}");
        assert!(text.contains(config.to_str().unwrap()), "{text}");
        assert!(text.contains(".aws/credentials, which does not exist"), "{text}");
    }
    let home = Home::new("[default]\nregion = x\n", &[("AWS_PROFILE", "dev")]);
    let public = Remote::new("s3://b?anonymous=true", home.options());
    assert!(public.is_ok(), "a public bucket needs no profile");
}

#[tokio::test]
async fn sts_says_why_it_refuses_a_role() {
    let refusal = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>no \
                   way</Message></Error><RequestId>1</RequestId></ErrorResponse>";
    let services = Services::start(&[("AssumeRole", 403, refusal)]).await;
    let config = "[default]\nrole_arn = arn:x\nsource_profile = default\n\
                  aws_access_key_id = BASE\naws_secret_access_key = hush\n";
    let home = Home::new(config, &[("AWS_ENDPOINT_URL_STS", &services.url)]);
    let error = home.call("").await.unwrap_err();
    let expected = "STS does not give the role arn:x: status 403, AccessDenied: no way";
    assert!(error.contains(expected) && !error.contains("hush"), "{error}");
}

#[tokio::test]
async fn a_profile_with_a_token_file_gets_a_role_by_it() {
    let xml = ROLE_XML.replace("AssumeRoleRe", "AssumeRoleWithWebIdentityRe");
    let services =
        Services::start(&[("AssumeRoleWithWebIdentity", 200, &xml), ("", 200, "{}")]).await;
    let mut home = Home::new("", &[("AWS_ENDPOINT_URL", &services.url)]);
    let token = home.directory.path().join("token");
    fs::write(&token, "the token\n").unwrap();
    let config = home.directory.path().join("other");
    let text =
        format!("[default]\nrole_arn = arn:x\nweb_identity_token_file = {}", token.display());
    fs::write(&config, text).unwrap();
    home.variables.insert("AWS_CONFIG_FILE".to_owned(), config.to_str().unwrap().to_owned());
    home.call("").await.unwrap();
    let requests = services.requests();
    assert!(requests[0].contains("WebIdentityToken=the+token"), "{}", requests[0]);
    assert_eq!(header(&requests[0], "authorization"), None);
    assert_eq!(signer(&requests[1]), "ROLE");
}

const SSO_CONFIG: &str = "[profile dev]\nsso_session = mine\nsso_account_id = 123\n\
                          sso_role_name = Read Only\n[sso-session mine]\nsso_region = eu-west-1\n\
                          sso_start_url = https://s\n";

fn sso_home(services: &Services) -> Home {
    let variables = [
        ("AWS_PROFILE", "dev"),
        ("AWS_ENDPOINT_URL_SSO", &services.url),
        ("AWS_ENDPOINT_URL_SSO_OIDC", &services.url),
        ("AWS_ENDPOINT_URL_DYNAMODB", &services.url),
    ];
    Home::new(SSO_CONFIG, &variables)
}

fn time_from_now(seconds: i64) -> String {
    let now = now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let time = chrono::DateTime::from_timestamp(now + seconds, 0).unwrap();
    time.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[tokio::test]
async fn who_has_logged_in_by_sso_gets_the_role() {
    let services =
        Services::start(&[("/federation/credentials", 200, SSO_JSON), ("", 200, "{}")]).await;
    let home = sso_home(&services);
    let end = time_from_now(3600);
    fs::write(home.token_file(), format!(r#"{{"accessToken":"T","expiresAt":"{end}"}}"#)).unwrap();
    home.call("").await.unwrap();
    let requests = services.requests();
    let line = "GET /federation/credentials?role_name=Read%20Only&account_id=123 ";
    assert!(requests[0].starts_with(line), "{}", requests[0]);
    assert_eq!(header(&requests[0], "x-amz-sso_bearer_token"), Some("T"));
    assert_eq!(signer(&requests[1]), "SSO");
}

#[tokio::test]
async fn who_has_not_logged_in_is_told_how_to() {
    let services = Services::start(&[("", 401, "{}")]).await;
    let home = sso_home(&services);
    let login = "run `aws sso login --profile dev`";
    let error = home.call("").await.unwrap_err();
    let path = home.token_file().display().to_string();
    assert!(error.contains(&format!("there is no token in {path}; {login}")), "{error}");
    for (file, part) in [
        ("hush", "is no JSON"),
        (r#"{"accessToken":"hush"}"#, "has no expiresAt"),
        (r#"{"accessToken":"hush","expiresAt":"2020-01-01T00:00:00UTC"}"#, "ended"),
        (r#"{"accessToken":"hush","expiresAt":"2100-01-01T00:00:00Z"}"#, "does not take"),
    ] {
        fs::write(home.token_file(), file).unwrap();
        let error = home.call("").await.unwrap_err();
        assert!(error.contains(part) && error.contains(login), "{file}: {error}");
        assert!(!error.contains("hush"), "{error}");
    }
}

#[tokio::test]
async fn a_token_of_sso_is_refreshed_and_kept() {
    let fresh = r#"{"accessToken":"NEW","expiresIn":28800,"refreshToken":"R2"}"#;
    let services = Services::start(&[
        ("POST /token ", 200, fresh),
        ("/federation/credentials", 200, SSO_JSON),
        ("", 200, "{}"),
    ])
    .await;
    let home = sso_home(&services);
    let file = format!(
        r#"{{"accessToken":"OLD","expiresAt":"{}","clientId":"C","clientSecret":"S",
            "refreshToken":"R","registrationExpiresAt":"{}","startUrl":"https://s"}}"#,
        time_from_now(-10),
        time_from_now(1000)
    );
    fs::write(home.token_file(), file).unwrap();
    home.call("").await.unwrap();
    let requests = services.requests();
    assert!(requests[0].contains(r#""grantType":"refresh_token""#), "{}", requests[0]);
    assert_eq!(header(&requests[1], "x-amz-sso_bearer_token"), Some("NEW"));
    let kept: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(home.token_file()).unwrap()).unwrap();
    assert_eq!(kept["accessToken"], "NEW");
    assert_eq!((&kept["refreshToken"], &kept["startUrl"]), (&"R2".into(), &"https://s".into()));
    home.call("").await.unwrap();
    assert!(services.requests()[3].starts_with("GET /federation"), "no second refresh");
}

#[tokio::test]
async fn programs_print_credentials() {
    let services = Services::start(&[("", 200, "{}")]).await;
    let printed = r#"{"Version": 1, "AccessKeyId": "PRINTED", "SecretAccessKey": "hush"}"#;
    for (command, expected) in [
        (format!("echo '{printed}'"), Ok(())),
        ("exit 3".to_owned(), Err("exit status: 3")),
        ("echo hush".to_owned(), Err("expected JSON with Version")),
        (format!("echo '{}'", printed.replace('1', "2")), Err("Version 2: expected 1")),
        ("head -c 100000 /dev/zero".to_owned(), Err("more than 65536 bytes")),
    ] {
        let config = format!("[profile p]\ncredential_process = {command}\n");
        let home = Home::new(&config, &[("AWS_ENDPOINT_URL", &services.url)]);
        let result = home.call("profile=p").await;
        match (&result, expected) {
            (Ok(()), Ok(())) => {
                assert_eq!(signer(services.requests().last().unwrap()), "PRINTED");
            }
            (Err(error), Err(part)) => {
                assert!(error.contains("credential_process of profile p"), "{error}");
                assert!(error.contains(part) && !error.contains("hush"), "{command}: {error}");
            }
            _ => panic!("{command}: {result:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_that_does_not_end_is_ended() {
    let command = profile::ProcessCommand("sleep 1000".to_owned());
    let credentials = tokio::spawn(process::credentials("p", command));
    while !credentials.is_finished() {
        advance(limits::PROCESS_TIMEOUT).await;
    }
    let error = credentials.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("it timed out after 60s"), "{error}");
}

#[tokio::test]
async fn a_role_of_the_machine_or_of_the_environment_is_assumed_with_their_keys() {
    let services = Services::start(&[
        ("/api/token", 200, "imds"),
        ("security-credentials/r", 200, MACHINE_JSON),
        ("security-credentials/", 200, "r"),
        ("AssumeRole", 200, ROLE_XML),
        ("", 200, "{}"),
    ])
    .await;
    let config = "[profile machine]\nrole_arn = arn:x\ncredential_source = Ec2InstanceMetadata\n\
                  [profile environment]\nrole_arn = arn:x\ncredential_source = Environment\n\
                  [profile container]\nrole_arn = arn:x\ncredential_source = EcsContainer\n";
    let url = services.url.as_str();
    let variables = [
        ("AWS_ENDPOINT_URL", url),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", url),
        ("AWS_ACCESS_KEY_ID", "ENV"),
        ("AWS_SECRET_ACCESS_KEY", "hush"),
    ];
    let home = Home::new(config, &variables);
    for (profile, expected) in [("machine", "MACHINE"), ("environment", "ENV")] {
        home.call(&format!("profile={profile}")).await.unwrap();
        let requests = services.requests();
        let [.., of_role, of_item] = requests.as_slice() else { panic!("{requests:?}") };
        assert_eq!((signer(of_role), signer(of_item)), (expected, "ROLE"));
    }
    let error = home.call("profile=container").await.unwrap_err();
    assert!(error.contains("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI is not set"), "{error}");
}

#[tokio::test]
async fn without_a_profile_the_machine_is_asked_and_an_error_says_what_was_looked_for() {
    let services = Services::start(&[
        ("/api/token", 200, "imds"),
        ("security-credentials/r", 200, MACHINE_JSON),
        ("security-credentials/", 200, "r"),
        ("", 200, "{}"),
    ])
    .await;
    let dynamodb = ("AWS_ENDPOINT_URL_DYNAMODB", services.url.as_str());
    let metadata = ("AWS_EC2_METADATA_SERVICE_ENDPOINT", services.url.as_str());
    let home = Home::new("[default]\nregion = eu-west-3\n", &[dynamodb, metadata]);
    home.call("").await.unwrap();
    let requests = services.requests();
    assert_eq!(signer(requests.last().unwrap()), "MACHINE");
    assert!(requests.last().unwrap().contains("/eu-west-3/dynamodb/"));

    let nothing = Services::start(&[]).await;
    let metadata = ("AWS_EC2_METADATA_SERVICE_ENDPOINT", nothing.url.as_str());
    let off = ("AWS_EC2_METADATA_DISABLED", "true");
    for (variable, part) in [(metadata, "the machine (instance metadata)"), (off, "is off")] {
        let home = Home::new("", &[dynamodb, variable]);
        let error = home.call("").await.unwrap_err();
        for part in ["no AWS_ACCESS_KEY_ID", "none in the profile default", ".aws/config", part] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}

#[test]
fn times_are_written_in_several_ways() {
    let expected = Some(UNIX_EPOCH + Duration::from_secs(951_825_601));
    for text in [
        "2000-02-29T12:00:01Z",
        "2000-02-29T12:00:01UTC",
        "2000-02-29T12:00:01+00:00",
        "2000-02-29T14:00:01.000+02:00",
    ] {
        assert_eq!(parse_time(text).map(|time| time - Duration::ZERO), expected, "{text}");
    }
    assert_eq!(parse_time("soon"), None);
}
