//! A codec that encodes messages like prost's, into buffers of the right size from the start.

use std::marker::PhantomData;

use prost::Message;
use tonic::{
    Status,
    codec::{BufferSettings, Codec, EncodeBuf, Encoder},
};
use tonic_prost::{ProstCodec, ProstDecoder};

/// prost's codec, except that its encoder reserves the message's size first: prost's lets a buffer
/// grow by doubling, which copies a message of many chunks each time.
#[derive(Clone, Copy, Debug)]
pub struct ExactCodec<T, U> {
    messages: PhantomData<(T, U)>,
}

impl<T, U> Default for ExactCodec<T, U> {
    fn default() -> Self {
        Self { messages: PhantomData }
    }
}

impl<T, U> Codec for ExactCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ExactEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> ExactEncoder<T> {
        ExactEncoder { messages: PhantomData }
    }

    fn decoder(&mut self) -> ProstDecoder<U> {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::default())
    }
}

/// Encoder of messages for [`ExactCodec`].
#[derive(Clone, Copy, Debug)]
pub struct ExactEncoder<T> {
    messages: PhantomData<T>,
}

impl<T: Message> Encoder for ExactEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(item.encoded_len());
        item.encode_raw(buffer);
        Ok(())
    }
}
