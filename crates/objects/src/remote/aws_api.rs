//! Calls of a JSON service of Amazon, signed with the credentials of a bucket's URL: one way to
//! find credentials serves the bucket and what belongs to it.

use std::{fmt, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use object_store::{
    aws::{AwsAuthorizer, AwsCredentialProvider},
    client::{HttpClient, HttpRequest, HttpRequestBody},
};
use tokio::time::timeout;
use url::Url;

/// Header with the CRC-32 of the body, in decimal.
const CHECKSUM_HEADER: &str = "x-amz-crc32";

/// Item of a DynamoDB table that a URL names, and the service to ask for it.
#[derive(Clone, Debug)]
pub struct ItemAddress {
    /// Service that holds the table.
    pub api: AwsApi,
    /// Name of the table.
    pub table: String,
    /// Key of the item: the database.
    pub key: String,
}

impl ItemAddress {
    /// Address of another item of the same table.
    pub(super) fn of_key(&self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self.clone() }
    }
}

/// A JSON service of Amazon in one region, reached with one set of credentials.
#[derive(Clone)]
pub struct AwsApi {
    service: &'static str,
    region: String,
    endpoint: Url,
    /// Settings that decide which credentials are found, and how.
    account: String,
    credentials: AwsCredentialProvider,
    client: HttpClient,
}

/// Answer of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiAnswer {
    /// Status of the HTTP response.
    pub status: u16,
    /// Body, which is complete.
    pub body: Bytes,
    /// True if the service sent a checksum of the body, which it passed.
    pub is_verified: bool,
}

/// Reason why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// There are no credentials, or they cannot be fetched.
    #[error("no credentials: {0}")]
    Credentials(String),
    /// The service cannot be reached, or the connection broke.
    #[error("{0}")]
    Connection(String),
    /// The answer did not come within the time, or stopped coming.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The body of the answer does not match its checksum.
    #[error("an answer that does not match its checksum")]
    Corrupt,
    /// The answer is longer than the caller takes.
    #[error("an answer of more than {0} bytes")]
    TooLong(usize),
}

impl AwsApi {
    pub(super) fn new(
        service: &'static str,
        region: &str,
        endpoint: Url,
        account: String,
        credentials: AwsCredentialProvider,
        client: HttpClient,
    ) -> Self {
        Self { service, region: region.to_owned(), endpoint, account, credentials, client }
    }

    /// URL of the service.
    pub fn endpoint(&self) -> &str {
        self.endpoint.as_str().trim_end_matches('/')
    }

    /// Identity of the service and of who calls it: what is equal may share calls.
    pub fn identity(&self) -> String {
        format!("{} {} {} {}", self.service, self.region, self.endpoint, self.account)
    }

    /// Calls an operation; `target` is the value of the header `X-Amz-Target`. An answer with any
    /// status is one.
    ///
    /// # Errors
    /// There is no answer within `time`, or none of at most `bytes_max` bytes.
    pub async fn post(
        &self,
        target: &'static str,
        body: Vec<u8>,
        time: Duration,
        bytes_max: usize,
    ) -> Result<ApiAnswer, ApiError> {
        let call = async {
            let request = self.signed(target, body).await?;
            let answer = self.client.execute(request).await.map_err(connection)?;
            let status = answer.status().as_u16();
            let checksum = answer.headers().get(CHECKSUM_HEADER).cloned();
            let mut body = BytesMut::new();
            let mut pieces = answer.into_body().bytes_stream();
            while let Some(piece) = pieces.next().await {
                let piece = piece.map_err(connection)?;
                if bytes_max < body.len() + piece.len() {
                    return Err(ApiError::TooLong(bytes_max));
                }
                body.extend_from_slice(&piece);
            }
            let checksum = checksum.and_then(|value| value.to_str().ok()?.trim().parse().ok());
            let is_right = |expected: u64| expected == checksum_of(&body);
            if checksum.is_some_and(|expected| !is_right(expected)) {
                return Err(ApiError::Corrupt);
            }
            Ok(ApiAnswer { status, body: body.freeze(), is_verified: checksum.is_some() })
        };
        timeout(time, call).await.unwrap_or(Err(ApiError::Timeout(time)))
    }

    async fn signed(&self, target: &'static str, body: Vec<u8>) -> Result<HttpRequest, ApiError> {
        let credentials = |error: object_store::Error| ApiError::Credentials(causes(&error));
        let credential = self.credentials.get_credential().await.map_err(credentials)?;
        let mut request = HttpRequest::new(HttpRequestBody::from(body));
        let invalid = |what| ApiError::Connection(format!("{}: no valid {what}", self.endpoint));
        *request.method_mut() = "POST".parse().map_err(|_| invalid("method"))?;
        *request.uri_mut() = self.endpoint.as_str().parse().map_err(|_| invalid("URL"))?;
        for (name, value) in
            [("content-type", "application/x-amz-json-1.0"), ("x-amz-target", target)]
        {
            let value = value.parse().map_err(|_| invalid("header"))?;
            request.headers_mut().insert(name, value);
        }
        AwsAuthorizer::new(&credential, self.service, &self.region)
            .try_authorize(&mut request, None)
            .map_err(credentials)?;
        Ok(request)
    }
}

impl fmt::Debug for AwsApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsApi")
            .field("service", &self.service)
            .field("region", &self.region)
            .field("endpoint", &self.endpoint.as_str())
            .finish_non_exhaustive()
    }
}

fn checksum_of(body: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, body)
}

fn connection(error: object_store::client::HttpError) -> ApiError {
    ApiError::Connection(causes(&error))
}

fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    super::fault::error_text(error)
}
