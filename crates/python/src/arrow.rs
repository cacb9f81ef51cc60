//! Tables for other packages by the Arrow C stream interface, without a Python object per cell.
//!
//! In:  columns, of ours or lists of numbers, truth values or texts. Out: a capsule `arrow_array_stream` of one batch.
//! The structures are those of the Arrow C data and C stream specifications. Numbers of ours are shared, not copied.
//!
//! The only `unsafe` of this crate, so one question to the interpreter stands here too.
#![expect(unsafe_code, reason = "the interface is made of C structures with functions that free them")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyCapsule, PyDict, PyFloat, PyInt, PyList, PyString};

use crate::column::Column;

const NULLABLE: i64 = 2;

#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

// SAFETY: the stream owns what it points to, and nothing in it belongs to a thread.
unsafe impl Send for ArrowArrayStream {}

impl Drop for ArrowArrayStream {
    fn drop(&mut self) {
        // A consumer that has moved the stream out has left no `release`.
        if let Some(release) = self.release {
            // SAFETY: not released yet, by the line above; `release` clears itself.
            unsafe { release(self) };
        }
    }
}

/// The cells of one column; bits say which are there, or all are.
struct Cells {
    values: Values,
    present: Option<Vec<u8>>,
    missing: usize,
    length: usize,
}

enum Values {
    Floats(Arc<Vec<f64>>),
    Integers(Vec<i64>),
    Truths(Vec<u8>),
    Texts { ends: Vec<i32>, bytes: Vec<u8> },
}

impl Values {
    const fn format(&self) -> &'static CStr {
        match self {
            Self::Floats(_) => c"g",
            Self::Integers(_) => c"l",
            Self::Truths(_) => c"b",
            Self::Texts { .. } => c"u",
        }
    }

    fn buffers(&self) -> Vec<*const c_void> {
        match self {
            Self::Floats(cells) => vec![cells.as_ptr().cast()],
            Self::Integers(cells) => vec![cells.as_ptr().cast()],
            Self::Truths(bits) => vec![bits.as_ptr().cast()],
            Self::Texts { ends, bytes } => vec![ends.as_ptr().cast(), bytes.as_ptr().cast()],
        }
    }
}

fn bits(flags: impl Iterator<Item = bool>) -> (Vec<u8>, usize) {
    let (mut bytes, mut unset) = (Vec::new(), 0);
    for (number, flag) in flags.enumerate() {
        if number % 8 == 0 {
            bytes.push(0);
        }
        if let Some(byte) = bytes.last_mut().filter(|_| flag) {
            *byte |= 1 << (number % 8);
        } else {
            unset += 1;
        }
    }
    (bytes, unset)
}

impl Cells {
    fn new(values: Values, length: usize, present: impl Iterator<Item = bool>) -> Self {
        let (bytes, missing) = bits(present);
        Self { values, present: (missing > 0).then_some(bytes), missing, length }
    }

    fn of_column(column: &Column) -> Self {
        let cells = Arc::clone(column.cells());
        let present: Vec<bool> = cells.iter().map(|cell| !cell.is_nan()).collect();
        Self::new(Values::Floats(cells), present.len(), present.into_iter())
    }

    fn of_list(name: &str, list: &Bound<'_, PyList>) -> PyResult<Self> {
        let list: Vec<_> = list.iter().map(as_pythons_own).collect();
        let mut present = Vec::with_capacity(list.len());
        let (mut truths, mut integers, mut floats, mut texts) = (0, 0, 0, 0);
        for item in &list {
            present.push(!item.is_none());
            // A truth value is an int too, so it is asked for first.
            let kind = if item.is_instance_of::<PyBool>() {
                &mut truths
            } else if item.is_instance_of::<PyInt>() {
                &mut integers
            } else if item.is_instance_of::<PyFloat>() {
                &mut floats
            } else {
                &mut texts
            };
            *kind += usize::from(!item.is_none());
        }
        let too_large = |item: &Bound<'_, PyAny>| {
            PyOverflowError::new_err(format!("column '{name}' holds {item}, which is too large for Arrow"))
        };
        let there = present.iter().filter(|there| **there).count();
        let values = if truths == there && there > 0 {
            let flags: PyResult<Vec<bool>> =
                list.iter().map(|item| if item.is_none() { Ok(false) } else { item.extract() }).collect();
            Values::Truths(bits(flags?.into_iter()).0)
        } else if integers == there && there > 0 {
            let cells: PyResult<Vec<i64>> = list
                .iter()
                .map(|item| if item.is_none() { Ok(0) } else { item.extract().map_err(|_| too_large(item)) })
                .collect();
            Values::Integers(cells?)
        } else if texts == 0 {
            let cells: PyResult<Vec<f64>> =
                list.iter()
                    .map(|item| {
                        if item.is_none() {
                            Ok(f64::NAN)
                        } else {
                            item.extract().map_err(|_| too_large(item))
                        }
                    })
                    .collect();
            Values::Floats(Arc::new(cells?))
        } else {
            texts_of(name, &list)?
        };
        Ok(Self::new(values, present.len(), present.into_iter()))
    }
}

/// A number of numpy's as one of Python's, and all else as it is.
fn as_pythons_own(item: Bound<'_, PyAny>) -> Bound<'_, PyAny> {
    let is_own = item.is_none()
        || item.is_instance_of::<PyInt>()
        || item.is_instance_of::<PyFloat>()
        || item.is_instance_of::<PyString>();
    if is_own {
        return item;
    }
    // numpy's letters for truth values, integers and floats; its moments would become integers too.
    let kind = item.getattr("dtype").and_then(|kind| kind.getattr("kind")?.extract::<char>());
    match kind {
        Ok('b' | 'i' | 'u' | 'f') => item.call_method0("item").unwrap_or(item),
        _ => item,
    }
}

fn texts_of(name: &str, list: &[Bound<'_, PyAny>]) -> PyResult<Values> {
    let holds = |what: String| PyTypeError::new_err(format!("column '{name}' holds {what}"));
    let (mut ends, mut bytes) = (vec![0_i32], Vec::new());
    for item in list {
        if let Ok(text) = item.cast::<PyString>() {
            bytes.extend_from_slice(text.extract::<String>()?.as_bytes());
        } else if !item.is_none() {
            return Err(holds(format!(
                "a `{}`; Arrow takes numbers, truth values or texts, and not several types in one column",
                item.get_type().name()?
            )));
        }
        ends.push(
            i32::try_from(bytes.len())
                .map_err(|_| holds("more than 2 GiB of text, which Arrow has no column for".to_owned()))?,
        );
    }
    Ok(Values::Texts { ends, bytes })
}

/// A batch on its way: handed out once.
struct Batch {
    columns: Vec<(CString, Cells)>,
    length: usize,
    is_given: bool,
}

/// What a schema owns.
struct SchemaOwned {
    name: CString,
    children: Vec<*mut ArrowSchema>,
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: made by `schema_of` from boxes of these types, and released once: the consumer checks `release`.
    unsafe {
        let owned = Box::from_raw((*schema).private_data.cast::<SchemaOwned>());
        for child in &owned.children {
            if let Some(release) = (**child).release {
                release(*child);
            }
            drop(Box::from_raw(*child));
        }
        (*schema).release = None;
    }
}

fn schema_of(format: &'static CStr, name: CString, children: Vec<ArrowSchema>) -> ArrowSchema {
    let children: Vec<_> = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
    let mut owned = Box::new(SchemaOwned { name, children });
    ArrowSchema {
        format: format.as_ptr(),
        name: owned.name.as_ptr(),
        metadata: ptr::null(),
        flags: NULLABLE,
        n_children: owned.children.len().cast_signed() as i64,
        children: owned.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(owned).cast(),
    }
}

/// What an array owns.
struct ArrayOwned {
    _cells: Option<Cells>,
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: made by `array_of` from boxes of these types, and released once: the consumer checks `release`.
    unsafe {
        let owned = Box::from_raw((*array).private_data.cast::<ArrayOwned>());
        for child in &owned.children {
            if let Some(release) = (**child).release {
                release(*child);
            }
            drop(Box::from_raw(*child));
        }
        (*array).release = None;
    }
}

fn array_of(length: usize, cells: Option<Cells>, children: Vec<ArrowArray>) -> ArrowArray {
    let null_count = cells.as_ref().map_or(0, |cells| cells.missing);
    let present = cells
        .as_ref()
        .and_then(|cells| cells.present.as_ref())
        .map_or(ptr::null(), |bits| bits.as_ptr().cast());
    let mut buffers = vec![present];
    buffers.extend(cells.iter().flat_map(|cells| cells.values.buffers()));
    let children: Vec<_> = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
    let mut owned = Box::new(ArrayOwned { _cells: cells, buffers, children });
    ArrowArray {
        length: length.cast_signed() as i64,
        null_count: null_count.cast_signed() as i64,
        offset: 0,
        n_buffers: owned.buffers.len().cast_signed() as i64,
        n_children: owned.children.len().cast_signed() as i64,
        buffers: owned.buffers.as_mut_ptr(),
        children: owned.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_array),
        private_data: Box::into_raw(owned).cast(),
    }
}

unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: called with the stream that `stream_of` made and that is not released, and with room for a schema.
    unsafe {
        let batch = &*(*stream).private_data.cast::<Batch>();
        let children = batch
            .columns
            .iter()
            .map(|(name, cells)| schema_of(cells.values.format(), name.clone(), Vec::new()))
            .collect();
        ptr::write(out, schema_of(c"+s", CString::default(), children));
    }
    0
}

unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: as above, with room for an array; an array without `release` says that there are no more.
    unsafe {
        let batch = &mut *(*stream).private_data.cast::<Batch>();
        if batch.is_given {
            ptr::write(out, std::mem::zeroed());
            return 0;
        }
        batch.is_given = true;
        let children = batch
            .columns
            .iter_mut()
            .map(|(_, cells)| {
                // The schema may be asked for again, so the kind of the column stays.
                let empty = match &cells.values {
                    Values::Floats(_) => Values::Floats(Arc::default()),
                    Values::Integers(_) => Values::Integers(Vec::new()),
                    Values::Truths(_) => Values::Truths(Vec::new()),
                    Values::Texts { .. } => Values::Texts { ends: Vec::new(), bytes: Vec::new() },
                };
                let empty = Cells { values: empty, present: None, missing: 0, length: 0 };
                let cells = std::mem::replace(cells, empty);
                array_of(cells.length, Some(cells), Vec::new())
            })
            .collect();
        ptr::write(out, array_of(batch.length, None, children));
    }
    0
}

unsafe extern "C" fn get_last_error(_stream: *mut ArrowArrayStream) -> *const c_char {
    ptr::null()
}

unsafe extern "C" fn release_stream(stream: *mut ArrowArrayStream) {
    // SAFETY: the box that `arrow_stream` made, dropped once: `release` is cleared here.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<Batch>()));
        (*stream).release = None;
    }
}

/// Columns as a capsule that Arrow, polars, pandas and others read.
#[pyfunction]
pub fn arrow_stream<'py>(py: Python<'py>, columns: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyCapsule>> {
    let columns: Vec<(CString, Cells)> = columns
        .iter()
        .map(|(name, column)| {
            let name: String = name.extract()?;
            let cells = match column.cast::<Column>() {
                Ok(column) => Cells::of_column(column.get()),
                Err(_) => Cells::of_list(&name, column.cast::<PyList>()?)?,
            };
            let name = CString::new(name).map_err(|_| PyTypeError::new_err("a column's name holds a NUL"))?;
            Ok((name, cells))
        })
        .collect::<PyResult<_>>()?;
    let length = columns.first().map_or(0, |(_, cells)| cells.length);
    let batch = Box::new(Batch { columns, length, is_given: false });
    let stream = ArrowArrayStream {
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release_stream),
        private_data: Box::into_raw(batch).cast(),
    };
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}

/// Whether we run in the main interpreter: another one would share our types and threads with it.
pub fn is_main_interpreter(_attached: Python<'_>) -> bool {
    // SAFETY: both calls only read, and need an attached interpreter, of which the argument is the proof.
    unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) == 0 }
}
