use super::*;

/// Profiles of two files.
fn profiles(config: &str, credentials: &str) -> Profiles {
    let directory = tempfile::tempdir().unwrap();
    let [config, credentials] = [("config", config), ("credentials", credentials)].map(|file| {
        let path = directory.path().join(file.0);
        std::fs::write(&path, file.1).unwrap();
        Some(path)
    });
    ProfileFiles { credentials, config, sso_cache: None }.read().unwrap()
}

fn plan(config: &str, credentials: &str, profile: &str) -> Result<Option<Plan>, String> {
    profiles(config, credentials).plan(profile)
}

fn keys(key_id: &str) -> Plan {
    let secret_key = "hush".to_owned();
    Plan::Keys(Arc::new(AwsCredential { key_id: key_id.to_owned(), secret_key, token: None }))
}

fn role(arn: &str) -> Role {
    Role { arn: arn.to_owned(), session_name: None, external_id: None, duration_seconds: None }
}

const KEYS: &str = "aws_access_key_id = K\naws_secret_access_key = hush\n";

#[test]
fn keys_of_the_file_of_credentials_count_more() {
    let config = format!("[profile a]\nregion = r\n{KEYS}\n[default]\nx = 1\n");
    let credentials = "[a]\naws_access_key_id = K2\n";
    assert_eq!(plan(&config, credentials, "a"), Ok(Some(keys("K2"))));
    assert_eq!(plan(&config, "", "default"), Ok(None));
    assert_eq!(plan(&config, "", "none"), Ok(None));
    let both = profiles(&config, credentials);
    assert_eq!((both.get("a", "region"), both.has("none")), (Some("r"), false));
    let token = plan("", &format!("[a]\n{KEYS}aws_session_token = T\n"), "a");
    let Ok(Some(Plan::Keys(token))) = token else { panic!("no keys") };
    assert_eq!(token.token.as_deref(), Some("T"));
}

#[test]
fn sections_are_named_as_aws_names_them() {
    let both = profiles(
        "[default]\nregion = one\n[profile default]\nregion = two\n[plain]\nregion = no\n\
         [profile \"with space\"]\nregion = three",
        "[other]\nregion = four",
    );
    let regions =
        ["default", "plain", "with space", "other"].map(|profile| both.get(profile, "region"));
    assert_eq!(regions, [Some("two"), None, Some("three"), Some("four")]);
}

#[test]
fn roles_have_the_credentials_of_their_source() {
    let config = format!(
        "[profile a]\nrole_arn = A\nsource_profile = b\nexternal_id = e\n\
         role_session_name = s\nduration_seconds = 900\n\
         [profile b]\nrole_arn = B\nsource_profile = c\n[profile c]\n{KEYS}\
         [profile self]\nrole_arn = S\nsource_profile = self\n{KEYS}\
         [profile ec2]\nrole_arn = E\ncredential_source = Ec2InstanceMetadata\n\
         [profile web]\nrole_arn = W\nweb_identity_token_file = /t\n"
    );
    let b = Plan::Role { role: role("B"), source: Box::new(keys("K")) };
    let of_a = Role {
        arn: "A".to_owned(),
        session_name: Some("s".to_owned()),
        external_id: Some("e".to_owned()),
        duration_seconds: Some("900".to_owned()),
    };
    let given = Box::new(Plan::Given(GivenSource::Instance));
    for (profile, expected) in [
        ("a", Plan::Role { role: of_a, source: Box::new(b) }),
        ("self", Plan::Role { role: role("S"), source: Box::new(keys("K")) }),
        ("ec2", Plan::Role { role: role("E"), source: given }),
        ("web", Plan::WebIdentity { role: role("W"), token_file: "/t".into() }),
    ] {
        assert_eq!(plan(&config, "", profile), Ok(Some(expected)), "{profile}");
    }
}

#[test]
fn sso_has_a_section_of_its_own_or_stands_in_the_profile() {
    let config = "[profile new]\nsso_session = mine\nsso_account_id = 1\nsso_role_name = R\n\
                  [sso-session mine]\nsso_region = eu-west-1\nsso_start_url = https://s\n\
                  [profile old]\nsso_start_url = https://o\nsso_region = r\nsso_account_id = 2\n\
                  sso_role_name = R\n[profile token]\nsso_session = mine\n";
    let sso = |profile: &str, region: &str, account_id: &str, cache_key: &str| {
        Plan::Sso(SsoRole {
            profile: profile.to_owned(),
            region: region.to_owned(),
            account_id: account_id.to_owned(),
            role_name: "R".to_owned(),
            cache_key: cache_key.to_owned(),
        })
    };
    assert_eq!(plan(config, "", "new"), Ok(Some(sso("new", "eu-west-1", "1", "mine"))));
    assert_eq!(plan(config, "", "old"), Ok(Some(sso("old", "r", "2", "https://o"))));
    assert_eq!(plan(config, "", "token"), Ok(None), "it is not for credentials");
}

#[test]
fn mistakes_say_what_is_missing_and_no_secret() {
    let config = "[profile a]\nrole_arn = A\nsource_profile = b\n\
                  [profile b]\nrole_arn = B\nsource_profile = a\n\
                  [profile self]\nrole_arn = S\nsource_profile = self\n\
                  [profile lost]\nrole_arn = S\nsource_profile = none\n\
                  [profile empty]\nregion = r\n\
                  [profile of_empty]\nrole_arn = S\nsource_profile = empty\n\
                  [profile alone]\nrole_arn = S\n\
                  [profile both]\nrole_arn = S\nsource_profile = a\ncredential_source = x\n\
                  [profile source]\nrole_arn = S\ncredential_source = Moon\n\
                  [profile mfa]\nrole_arn = S\nsource_profile = a\nmfa_serial = m\n\
                  [profile half]\naws_secret_access_key = hush\n\
                  [profile sso]\nsso_session = mine\nsso_account_id = 1\n\
                  [profile sso2]\nsso_start_url = s\nsso_account_id = 1\nsso_role_name = R\n";
    for (profile, part) in [
        ("a", "in a circle, or through more than 8 profiles: a -> b -> a"),
        ("self", "source_profile is self, which has no keys"),
        ("lost", "source_profile none does not exist"),
        ("of_empty", "source_profile empty has no credentials"),
        ("alone", "role_arn needs source_profile"),
        ("both", "not both"),
        ("source", "expected Environment, EcsContainer or"),
        ("mfa", "mfa_serial"),
        ("half", "aws_access_key_id is missing"),
        ("sso", "there is no section [sso-session mine]"),
        ("sso2", "sso_region is missing"),
    ] {
        let error = plan(config, "", profile).unwrap_err();
        assert!(error.contains(part) && !error.contains("hush"), "{profile}: {error}");
    }
    let shown = format!("{:?}", plan(&format!("[profile k]\n{KEYS}"), "", "k"));
    assert!(!shown.contains("hush"), "{shown}");
    let process = plan("[profile p]\ncredential_process = vault --token hush", "", "p");
    assert!(matches!(&process, Ok(Some(Plan::Process(_)))));
    assert!(!format!("{process:?}").contains("hush"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let config = Some(directory.path().join("config"));
    let files = ProfileFiles { credentials: None, config, sso_cache: None };
    assert!(files.read().is_ok_and(|profiles| !profiles.has("default")));
    std::fs::write(directory.path().join("config"), "[a]\nhush").unwrap();
    let error = files.read().map(drop).unwrap_err();
    assert!(error.ends_with("config, line 2: expected `name = value` or `[section]`"), "{error}");
}

#[test]
fn endpoints_stand_in_the_profile_or_in_a_section_of_services() {
    let both = profiles(
        "[profile a]\nservices = mine\nendpoint_url = http://all\n[services mine]\n\
         dynamodb =\n  endpoint_url = http://ddb\ns3 =\n  other = x\n",
        "",
    );
    let of = |service| both.endpoint("a", service);
    assert_eq!(of("dynamodb").as_deref(), Some("http://ddb"));
    assert_eq!(of("s3").as_deref(), Some("http://all"));
    assert_eq!(both.endpoint("b", "s3"), None);
}

#[test]
fn paths_come_from_the_environment() {
    let of = |variables: &'static [(&str, &str)]| {
        let environment: Environment = Arc::new(move |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
        });
        let ProfileFiles { credentials, config, sso_cache } = ProfileFiles::of(&environment);
        [credentials, config, sso_cache]
            .map(|path| path.map_or_else(String::new, |path| path.display().to_string()))
    };
    assert_eq!(of(&[]), ["", "", ""]);
    assert_eq!(
        of(&[("HOME", "/h")]),
        ["/h/.aws/credentials", "/h/.aws/config", "/h/.aws/sso/cache"]
    );
    assert_eq!(
        of(&[("HOME", "/h"), ("AWS_CONFIG_FILE", "~/c"), ("AWS_SHARED_CREDENTIALS_FILE", "/x")]),
        ["/x", "/h/c", "/h/.aws/sso/cache"]
    );
}
