//! Reads and listings as S3 answers them, over a directory; s3s-fs does the writes.

use std::{
    fs::{File, Metadata},
    io,
    os::unix::fs::FileExt,
    path::{Component, Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use hyper::{HeaderMap, header};
use s3s::{
    S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result,
    dto::{
        CommonPrefix, DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput,
        DeleteObjectsOutput, ETag, ETagCondition, GetObjectInput, GetObjectOutput, HeadBucketInput,
        HeadBucketOutput, HeadObjectInput, HeadObjectOutput, ListBucketsInput, ListBucketsOutput,
        ListObjectsInput, ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output, Object,
        PutObjectInput, PutObjectOutput, Range, StreamingBlob, Timestamp,
    },
    s3_error,
    stream::{ByteStream, RemainingLength},
};
use s3s_fs::FileSystem;

use crate::{
    Error,
    etag::Etags,
    limits::{LISTED_KEYS_MAX, PIECE_BYTES},
    listing::{self, Listed},
};

/// A directory of buckets.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    files: FileSystem,
    etags: Arc<Etags>,
}

/// An object that exists, is open, and passed the request's conditions.
struct Found {
    file: File,
    metadata: Metadata,
    etag: ETag,
}

/// Conditions of a read on the object's version.
struct Conditions<'a> {
    matches: Option<&'a ETagCondition>,
    differs: Option<&'a ETagCondition>,
}

impl Directory {
    pub fn new(root: &Path, etags: Arc<Etags>) -> Result<Self, Error> {
        let files = FileSystem::new(root)
            .map_err(|error| Error(format!("cannot serve the directory: {error:?}")))?;
        Ok(Self { root: root.to_owned(), files, etags })
    }

    fn path(&self, bucket: &str, key: &str) -> Option<PathBuf> {
        let is_plain = |name: &str| !name.is_empty() && !matches!(name, "." | "..");
        key.split('/').all(is_plain).then(|| self.bucket(bucket).map(|path| path.join(key)))?
    }

    fn bucket(&self, name: &str) -> Option<PathBuf> {
        let mut components = Path::new(name).components();
        let is_one =
            matches!(components.next(), Some(Component::Normal(_))) && components.next().is_none();
        is_one.then(|| self.root.join(name))
    }

    fn find(&self, bucket: &str, key: &str, conditions: &Conditions<'_>) -> S3Result<Found> {
        let path = self.path(bucket, key).ok_or_else(|| s3_error!(NoSuchKey))?;
        let (file, metadata) = open(&path).map_err(|error| absent_or_broken(&error))?;
        let etag =
            ETag::Strong(self.etags.of(&path, &file, &metadata).map_err(|error| broken(&error))?);
        conditions.check(&etag)?;
        Ok(Found { file, metadata, etag })
    }

    /// Returns the ETag after a write, so that writer and readers see the same.
    fn etag_after(&self, bucket: &str, key: &str) -> S3Result<Option<ETag>> {
        if let Some(path) = self.path(bucket, key) {
            self.etags.forget(&path);
        }
        let any = Conditions { matches: None, differs: None };
        self.find(bucket, key, &any).map(|found| Some(found.etag))
    }

    /// Checks a write's conditions against the ETags that reads show; s3s-fs keeps others.
    fn check_write(&self, input: &mut PutObjectInput) -> S3Result<()> {
        let conditions = Conditions { matches: input.if_match.as_ref(), differs: None };
        if conditions.matches.is_some() {
            self.find(&input.bucket, &input.key, &conditions).map(drop)?;
        }
        input.if_match = None;
        Ok(())
    }

    fn list(&self, input: &ListObjectsV2Input) -> S3Result<ListObjectsV2Output> {
        let bucket = self
            .bucket(&input.bucket)
            .filter(|path| path.is_dir())
            .ok_or_else(|| s3_error!(NoSuchBucket))?;
        let by_folder = match input.delimiter.as_deref() {
            None | Some("") => false,
            Some("/") => true,
            Some(_) => return Err(s3_error!(NotImplemented, "the only delimiter is /")),
        };
        let after = input
            .continuation_token
            .as_deref()
            .max(input.start_after.as_deref())
            .unwrap_or_default();
        let asked = input.max_keys.and_then(|keys| usize::try_from(keys).ok());
        let keys_max = asked.unwrap_or(LISTED_KEYS_MAX).min(LISTED_KEYS_MAX);

        let prefix = input.prefix.as_deref().unwrap_or_default();
        let mut entries =
            listing::entries(&bucket, prefix, by_folder).map_err(|error| broken(&error))?;
        entries.drain(..entries.partition_point(|entry| entry.key.as_str() <= after));
        let is_truncated = entries.len() > keys_max;
        entries.truncate(keys_max);
        let next = is_truncated.then(|| entries.last().map(|entry| entry.key.clone())).flatten();

        let key_count = i32::try_from(entries.len()).ok();
        let (prefixes, keys): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| entry.is_prefix);
        let contents: Vec<Object> =
            keys.into_iter().filter_map(|entry| self.listed(&bucket, entry.key)).collect();
        let prefixes = prefixes.into_iter().map(|entry| CommonPrefix { prefix: Some(entry.key) });
        Ok(ListObjectsV2Output {
            name: Some(input.bucket.clone()),
            prefix: input.prefix.clone(),
            delimiter: input.delimiter.clone(),
            start_after: input.start_after.clone(),
            continuation_token: input.continuation_token.clone(),
            max_keys: i32::try_from(keys_max).ok(),
            key_count,
            is_truncated: Some(is_truncated),
            next_continuation_token: next,
            contents: Some(contents),
            common_prefixes: Some(prefixes.collect()),
            ..Default::default()
        })
    }

    /// Returns the listing entry of an object; `None` if it was deleted since its name was read.
    fn listed(&self, bucket: &Path, key: String) -> Option<Object> {
        let Listed { metadata, etag } =
            listing::properties(&bucket.join(&key), &self.etags).ok()?;
        Some(Object {
            key: Some(key),
            size: i64::try_from(metadata.len()).ok(),
            e_tag: Some(ETag::Strong(etag)),
            last_modified: modified(&metadata),
            ..Default::default()
        })
    }
}

impl Conditions<'_> {
    fn check(&self, etag: &ETag) -> S3Result<()> {
        let holds = |condition: &ETagCondition| match condition {
            ETagCondition::Any => true,
            ETagCondition::ETag(wanted) => etag.weak_cmp(wanted),
        };
        if self.matches.is_some_and(|condition| !holds(condition)) {
            return Err(s3_error!(
                PreconditionFailed,
                "At least one of the pre-conditions you specified did not hold"
            ));
        }
        if self.differs.is_some_and(holds) {
            let mut not_modified = S3Error::new(S3ErrorCode::NotModified);
            let headers =
                etag.to_http_header().map(|etag| HeaderMap::from_iter([(header::ETAG, etag)]));
            not_modified.set_headers(headers.unwrap_or_default());
            return Err(not_modified);
        }
        Ok(())
    }
}

/// Opens a file; only files are objects.
fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok((file, metadata)) } else { Err(io::ErrorKind::NotFound.into()) }
}

fn absent_or_broken(error: &io::Error) -> S3Error {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename => {
            s3_error!(NoSuchKey, "The specified key does not exist.")
        }
        _ => broken(error),
    }
}

fn broken(error: &io::Error) -> S3Error {
    s3_error!(InternalError, "{error}")
}

fn modified(metadata: &Metadata) -> Option<Timestamp> {
    metadata.modified().ok().map(Timestamp::from)
}

/// Returns the bytes that a range of an object of this size means, or all of it. A suffix of an
/// empty object has no bytes, which no response can express.
fn resolve(range: Option<Range>, bytes: u64) -> S3Result<std::ops::Range<u64>> {
    match range {
        None => Ok(0..bytes),
        Some(_) if bytes == 0 => Err(s3_error!(InvalidRange)),
        Some(range) => Ok(range.check(bytes)?),
    }
}

/// Part of a file as a body. Files of tests are in the page cache: reading one here is quicker than
/// in another thread.
struct Part {
    file: File,
    rest: std::ops::Range<u64>,
}

impl Part {
    fn remaining(&self) -> usize {
        usize::try_from(self.rest.end - self.rest.start).unwrap_or(usize::MAX)
    }

    fn next_piece(&mut self) -> io::Result<Bytes> {
        let mut piece = BytesMut::zeroed(self.remaining().min(PIECE_BYTES));
        self.file.read_exact_at(&mut piece, self.rest.start)?;
        self.rest.start += piece.len() as u64;
        Ok(piece.freeze())
    }
}

impl Stream for Part {
    type Item = Result<Bytes, s3s::StdError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let piece = (self.remaining() > 0).then(|| self.next_piece().map_err(Into::into));
        if matches!(piece, Some(Err(_))) {
            self.rest.start = self.rest.end;
        }
        Poll::Ready(piece)
    }
}

impl ByteStream for Part {
    fn remaining_length(&self) -> RemainingLength {
        RemainingLength::new_exact(self.remaining())
    }
}

#[async_trait::async_trait]
impl S3 for Directory {
    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        let conditions =
            Conditions { matches: input.if_match.as_ref(), differs: input.if_none_match.as_ref() };
        let Found { file, metadata, etag } = self.find(&input.bucket, &input.key, &conditions)?;
        let rest = resolve(input.range, metadata.len())?;
        let shown = || format!("bytes {}-{}/{}", rest.start, rest.end - 1, metadata.len());
        Ok(S3Response::new(GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: i64::try_from(rest.end - rest.start).ok(),
            content_range: input.range.map(|_| shown()),
            content_type: Some("binary/octet-stream".to_owned()),
            e_tag: Some(etag),
            last_modified: modified(&metadata),
            body: Some(StreamingBlob::new(Part { file, rest })),
            ..Default::default()
        }))
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = request.input;
        let conditions =
            Conditions { matches: input.if_match.as_ref(), differs: input.if_none_match.as_ref() };
        let Found { metadata, etag, .. } = self.find(&input.bucket, &input.key, &conditions)?;
        Ok(S3Response::new(HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: i64::try_from(metadata.len()).ok(),
            content_type: Some("binary/octet-stream".to_owned()),
            e_tag: Some(etag),
            last_modified: modified(&metadata),
            ..Default::default()
        }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        self.list(&request.input).map(S3Response::new)
    }

    async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let mut second: ListObjectsV2Input = request.input.clone().into();
        second.start_after = request.input.marker;
        let output = self.list(&second)?;
        Ok(S3Response::new(ListObjectsOutput {
            name: output.name,
            prefix: output.prefix,
            delimiter: output.delimiter,
            max_keys: output.max_keys,
            is_truncated: output.is_truncated,
            next_marker: output.next_continuation_token,
            contents: output.contents,
            common_prefixes: output.common_prefixes,
            ..Default::default()
        }))
    }

    async fn put_object(
        &self,
        mut request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        self.check_write(&mut request.input)?;
        let (bucket, key) = (request.input.bucket.clone(), request.input.key.clone());
        let mut response = self.files.put_object(request).await?;
        response.output.e_tag = self.etag_after(&bucket, &key)?;
        Ok(response)
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        self.files.delete_object(request).await
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        self.files.delete_objects(request).await
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        self.files.head_bucket(request).await
    }

    async fn list_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        self.files.list_buckets(request).await
    }
}
