//! RESP2 and RESP3: request parser and reply writer
