//! The write of the model test: it knows which requests it stands for.

use std::collections::BTreeMap;

use busload_batch::Write;

/// Maximum number of fields of a merged change: with one more it returns the later change.
const FIELDS_MAX: usize = 3;

/// Content of a key.
pub type Value = Option<BTreeMap<u8, usize>>;

/// Write of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Replaces all by one field, 0. Takes this many bytes.
    Set(u8),
    /// Sets one field and keeps the others.
    SetField(u8),
    Delete,
}

/// Write of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    kind: ChangeKind,
    fields: BTreeMap<u8, usize>,
    bytes: usize,
    /// Requests whose actions it has merged, in order.
    pub requests: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    Set,
    SetFields,
    Delete,
}

impl Action {
    pub fn apply(self, request: usize, value: &mut Value) {
        Change::new(self, request).apply(value);
    }
}

impl Change {
    /// Values are the number of the request that wrote them.
    pub fn new(action: Action, request: usize) -> Self {
        let (kind, fields, bytes) = match action {
            Action::Set(bytes) => {
                (ChangeKind::Set, BTreeMap::from([(0, request)]), usize::from(bytes))
            }
            Action::SetField(field) => {
                (ChangeKind::SetFields, BTreeMap::from([(field, request)]), 4)
            }
            Action::Delete => (ChangeKind::Delete, BTreeMap::new(), 0),
        };
        Change { kind, fields, bytes, requests: vec![request] }
    }

    pub fn apply(&self, value: &mut Value) {
        match self.kind {
            ChangeKind::Set => *value = Some(self.fields.clone()),
            ChangeKind::SetFields => value.get_or_insert_default().extend(self.fields.clone()),
            ChangeKind::Delete => *value = None,
        }
    }
}

impl Write for Change {
    type Kind = ChangeKind;
    type Receipt = usize;

    fn kind(&self) -> ChangeKind {
        self.kind
    }

    fn receipt(&self) -> usize {
        0
    }

    fn merge(&mut self, later: Self) -> Result<usize, Self> {
        if self.kind != later.kind {
            return Err(later);
        }
        let mut fields = self.fields.clone();
        fields.extend(later.fields.clone());
        if FIELDS_MAX < fields.len() {
            return Err(later);
        }
        self.bytes =
            if self.kind == ChangeKind::SetFields { 4 * fields.len() } else { later.bytes };
        self.fields = fields;
        self.requests.extend(later.requests);
        Ok(self.requests.len() - 1)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
