//! Environment variables, with the names that the vendors' own tools use.

use std::{marker::PhantomData, str::FromStr};

use object_store::{aws::AmazonS3ConfigKey, azure::AzureConfigKey, gcp::GoogleConfigKey};

use crate::Environment;

/// The variables of a vendor. `object_store` knows their meaning by the name in lower case.
pub(super) struct Vendor<K> {
    variables: &'static [&'static str],
    /// Variables of which the first that is set is the endpoint.
    endpoints: &'static [&'static str],
    key: PhantomData<fn() -> K>,
}

/// Variables that are set, with their values.
pub(super) struct Found<K> {
    pub(super) settings: Vec<(K, String)>,
    pub(super) endpoint: Option<String>,
}

pub(super) const AWS: Vendor<AmazonS3ConfigKey> = Vendor {
    // AWS_REGION comes behind AWS_DEFAULT_REGION because it counts more.
    variables: &[
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_DEFAULT_REGION",
        "AWS_REGION",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_ROLE_ARN",
        "AWS_ROLE_SESSION_NAME",
        "AWS_ENDPOINT_URL_STS",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_METADATA_ENDPOINT",
        "AWS_IMDSV1_FALLBACK",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
        "AWS_SKIP_SIGNATURE",
        "AWS_REQUEST_PAYER",
    ],
    endpoints: &[],
    key: PhantomData,
};

/// Variables of the region, that of the first counts.
pub(super) const AWS_REGIONS: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];

/// Variable that makes AWS' tools pass over all endpoints but those of URLs.
const AWS_NO_ENDPOINTS: &str = "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS";
/// Variables of which the first that is set is the endpoint of S3.
pub(super) const AWS_S3_ENDPOINTS: [&str; 3] =
    ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
/// Variables of which the first that is set is the endpoint of DynamoDB.
pub(super) const AWS_DYNAMODB_ENDPOINTS: [&str; 2] =
    ["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"];

pub(super) const GOOGLE: Vendor<GoogleConfigKey> = Vendor {
    variables: &[
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_BEARER_TOKEN",
        "GOOGLE_SKIP_SIGNATURE",
    ],
    endpoints: &["GOOGLE_BASE_URL"],
    key: PhantomData,
};

/// Variable of the account's name, apart because it says which containers are meant.
pub(super) const AZURE_ACCOUNT: &str = "AZURE_STORAGE_ACCOUNT_NAME";

pub(super) const AZURE: Vendor<AzureConfigKey> = Vendor {
    variables: &[
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_TOKEN",
        "AZURE_STORAGE_USE_EMULATOR",
        "AZURE_CLIENT_ID",
        "AZURE_CLIENT_SECRET",
        "AZURE_TENANT_ID",
        "AZURE_AUTHORITY_HOST",
        "AZURE_FEDERATED_TOKEN_FILE",
        "AZURE_MSI_ENDPOINT",
        "AZURE_IDENTITY_ENDPOINT",
        "AZURE_MSI_RESOURCE_ID",
        "AZURE_OBJECT_ID",
        "AZURE_USE_AZURE_CLI",
        "AZURE_SKIP_SIGNATURE",
    ],
    endpoints: &["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"],
    key: PhantomData,
};

/// A variable that is set to nothing counts as not set.
pub(in crate::remote) fn value_of(environment: &Environment, variable: &str) -> Option<String> {
    environment(variable).filter(|value| !value.is_empty())
}

/// Returns the value of the first variable that is set.
pub(super) fn first_value_of(environment: &Environment, variables: &[&str]) -> Option<String> {
    variables.iter().find_map(|name| value_of(environment, name))
}

/// Returns whether a variable is set to "true".
pub(in crate::remote) fn is_true(environment: &Environment, variable: &str) -> bool {
    value_of(environment, variable).is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// Returns whether endpoints of environment and profiles count.
pub(in crate::remote) fn has_aws_endpoints(environment: &Environment) -> bool {
    !is_true(environment, AWS_NO_ENDPOINTS)
}

/// Returns the endpoint of a service of AWS that the environment names.
pub(in crate::remote) fn aws_endpoint(
    environment: &Environment,
    variables: &[&str],
) -> Option<String> {
    first_value_of(environment, variables).filter(|_| has_aws_endpoints(environment))
}

impl<K: FromStr> Vendor<K> {
    pub(super) fn collect(&self, environment: &Environment) -> Found<K> {
        let setting = |name: &&str| {
            let key = name.to_ascii_lowercase().parse().ok()?;
            Some((key, value_of(environment, name)?))
        };
        Found {
            settings: self.variables.iter().filter_map(setting).collect(),
            endpoint: first_value_of(environment, self.endpoints),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_are_known<K: FromStr>(vendor: &Vendor<K>) {
        for name in vendor.variables {
            assert!(name.to_ascii_lowercase().parse::<K>().is_ok(), "{name}");
        }
    }

    #[test]
    fn object_store_knows_every_variable() {
        all_are_known(&AWS);
        all_are_known(&GOOGLE);
        all_are_known(&AZURE);
    }
}
