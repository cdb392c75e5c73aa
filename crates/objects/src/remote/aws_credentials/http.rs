//! Calls of STS and SSO, each with a limit of time and bytes.

use std::sync::OnceLock;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use object_store::{
    ClientOptions,
    client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody, ReqwestConnector},
};
use tokio::time::timeout;

use super::{
    CredentialError,
    limits::{ANSWER_BYTES_MAX, CALL_TIMEOUT},
};
use crate::{
    Environment, Error,
    remote::address::{checked_endpoint, environment::aws_endpoint},
};

/// Client of STS and SSO, and their endpoints if they are not Amazon's.
#[derive(Debug)]
pub(super) struct CredentialHttp {
    /// Client, which is made when it is first needed: it reads the certificates of the system.
    client: OnceLock<HttpClient>,
    options: ClientOptions,
    sts: Option<String>,
    sso: Option<String>,
    sso_oidc: Option<String>,
}

/// Service that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// Service that gives roles.
    Sts,
    /// Credentials of who has logged in.
    Sso,
    /// Tokens of who has logged in.
    SsoOidc,
}

/// Answer of a service, complete.
pub(super) struct HttpAnswer {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

impl CredentialHttp {
    pub(super) fn new(environment: &Environment, options: &ClientOptions) -> Result<Self, Error> {
        let endpoint = |variables: &[&str]| {
            let given = aws_endpoint(environment, variables);
            let checked = given.map(|text| checked_endpoint(&text)).transpose()?;
            Ok(checked.map(|url| url.as_str().trim_end_matches('/').to_owned()))
        };
        let all = "AWS_ENDPOINT_URL";
        let sts = endpoint(&["AWS_ENDPOINT_URL_STS", all])?;
        let sso = endpoint(&["AWS_ENDPOINT_URL_SSO", all])?;
        let sso_oidc = endpoint(&["AWS_ENDPOINT_URL_SSO_OIDC", all])?;
        let is_plain = [&sts, &sso, &sso_oidc]
            .into_iter()
            .flatten()
            .any(|endpoint| endpoint.starts_with("http://"));
        let options = options.clone().with_allow_http(is_plain);
        Ok(Self { client: OnceLock::new(), options, sts, sso, sso_oidc })
    }

    fn client(&self) -> Result<&HttpClient, CredentialError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = ReqwestConnector::default()
            .connect(&self.options)
            .map_err(|error| CredentialError::Settings(format!("a client of STS: {error}")))?;
        Ok(self.client.get_or_init(|| client))
    }

    /// Returns the URL of a service, without a slash at its end.
    pub(super) fn endpoint(
        &self,
        service: Service,
        region: &str,
    ) -> Result<String, CredentialError> {
        let (given, name) = match service {
            Service::Sts => (&self.sts, "sts"),
            Service::Sso => (&self.sso, "portal.sso"),
            Service::SsoOidc => (&self.sso_oidc, "oidc"),
        };
        if let Some(given) = given {
            return Ok(given.clone());
        }
        // It becomes part of a host, which gets credentials.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if region.is_empty() || !region.bytes().all(is_plain) {
            let text = format!("region {region:?}: expected one like eu-west-1");
            return Err(CredentialError::Settings(text));
        }
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        Ok(format!("https://{name}.{region}.{domain}"))
    }

    /// Sends a request and returns its answer, whatever the status.
    pub(super) async fn call(&self, request: HttpRequest) -> Result<HttpAnswer, CredentialError> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        let failed = |text: String| CredentialError::Unavailable(format!("{host}: {text}"));
        let error = |error| failed(crate::remote::fault::error_text(&error));
        let client = self.client()?;
        let call = async {
            let answer = client.execute(request).await.map_err(error)?;
            let status = answer.status().as_u16();
            let mut body = BytesMut::new();
            let mut pieces = answer.into_body().bytes_stream();
            while let Some(piece) = pieces.next().await {
                let piece = piece.map_err(error)?;
                if ANSWER_BYTES_MAX < body.len() + piece.len() {
                    return Err(failed(format!("an answer of more than {ANSWER_BYTES_MAX} bytes")));
                }
                body.extend_from_slice(&piece);
            }
            Ok(HttpAnswer { status, body: body.freeze() })
        };
        let late = || failed(format!("no answer within {CALL_TIMEOUT:?}"));
        timeout(CALL_TIMEOUT, call).await.unwrap_or_else(|_| Err(late()))
    }
}

/// Makes a request with headers.
pub(super) fn request(
    method: &str,
    url: &str,
    headers: &[(&'static str, &str)],
    body: String,
) -> Result<HttpRequest, CredentialError> {
    let invalid = |what: &str| CredentialError::Settings(format!("no valid {what} for AWS"));
    let mut request = HttpRequest::new(HttpRequestBody::from(body));
    *request.method_mut() = method.parse().map_err(|_| invalid("method"))?;
    *request.uri_mut() = url.parse().map_err(|_| invalid("URL"))?;
    for (name, value) in headers {
        // Its text may be a secret.
        let value = value.parse().map_err(|_| invalid(name))?;
        request.headers_mut().insert(*name, value);
    }
    Ok(request)
}

/// Returns whether a status says that another attempt may help.
pub(super) fn is_transient(status: u16) -> bool {
    status == 429 || 500 <= status
}
