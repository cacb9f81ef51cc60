//! Exports tables through the Arrow C stream interface, without a Python object per cell.
//!
//! In:  native columns, or lists of numbers, booleans or strings. Out: a capsule `arrow_array_stream` with one batch.
//! The structs are those of the Arrow C data and C stream specifications. Native columns are shared, not copied.
//!
//! This file has all `unsafe` code of the crate, so `is_main_interpreter` is here too.
#![expect(unsafe_code, reason = "the interface consists of C structs with release functions")]

use std::collections::HashSet;
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

// SAFETY: the stream owns everything it points to, and nothing in it is bound to a thread.
unsafe impl Send for ArrowArrayStream {}

impl Drop for ArrowArrayStream {
    fn drop(&mut self) {
        // A consumer that moved the stream out has cleared `release`.
        if let Some(release) = self.release {
            // SAFETY: not released yet, since `release` is set; `release` clears itself.
            unsafe { release(self) };
        }
    }
}

/// The cells of one column. `present` is a validity bitmap; `None` means that no cell is missing.
struct Cells {
    values: Values,
    present: Option<Vec<u8>>,
    missing: usize,
    length: usize,
}

/// What a column of numbers can be exported as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Time,
    Integer,
}

enum Values {
    Floats(Arc<Vec<f64>>),
    Integers(Vec<i64>),
    /// Microseconds since 1970, in UTC.
    Times(Vec<i64>),
    Booleans(Vec<u8>),
    Strings {
        ends: Vec<i32>,
        bytes: Vec<u8>,
    },
}

impl Values {
    const fn format(&self) -> &'static CStr {
        match self {
            Self::Floats(_) => c"g",
            Self::Integers(_) => c"l",
            Self::Times(_) => c"tsu:UTC",
            Self::Booleans(_) => c"b",
            Self::Strings { .. } => c"u",
        }
    }

    fn buffers(&self) -> Vec<*const c_void> {
        match self {
            Self::Floats(cells) => vec![cells.as_ptr().cast()],
            Self::Integers(cells) | Self::Times(cells) => vec![cells.as_ptr().cast()],
            Self::Booleans(bits) => vec![bits.as_ptr().cast()],
            Self::Strings { ends, bytes } => vec![ends.as_ptr().cast(), bytes.as_ptr().cast()],
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

    /// Numbers as times or integers, if all of them are; missing cells stay missing.
    fn typed(mut self, kind: Kind) -> Self {
        let Values::Floats(cells) = &self.values else { return self };
        let scale = if kind == Kind::Time { 1e6 } else { 1.0 };
        let fits = |cell: &f64| {
            let scaled = cell * scale;
            scaled.abs() < 2_f64.powi(63) && (kind == Kind::Time || scaled.fract() == 0.0)
        };
        if cells.iter().filter(|cell| !cell.is_nan()).all(fits) {
            #[expect(clippy::cast_possible_truncation, reason = "in range; a missing cell is 0")]
            let numbers = cells.iter().map(|cell| (cell * scale).round() as i64).collect();
            self.values = if kind == Kind::Time { Values::Times(numbers) } else { Values::Integers(numbers) };
        }
        self
    }

    fn of_list(name: &str, list: &Bound<'_, PyList>) -> PyResult<Self> {
        let list: Vec<_> = list.iter().map(to_python_number).collect();
        let mut present = Vec::with_capacity(list.len());
        let (mut booleans, mut integers, mut floats, mut strings) = (0, 0, 0, 0);
        for item in &list {
            present.push(!item.is_none());
            // `bool` is a subclass of `int`, so it is tested first.
            let kind = if item.is_instance_of::<PyBool>() {
                &mut booleans
            } else if item.is_instance_of::<PyInt>() {
                &mut integers
            } else if item.is_instance_of::<PyFloat>() {
                &mut floats
            } else {
                &mut strings
            };
            *kind += usize::from(!item.is_none());
        }
        let too_large = |item: &Bound<'_, PyAny>| {
            PyOverflowError::new_err(format!(
                "column '{name}' holds {item}, which does not fit an Arrow number"
            ))
        };
        let there = present.iter().filter(|there| **there).count();
        let values = if booleans == there && there > 0 {
            let flags: PyResult<Vec<bool>> =
                list.iter().map(|item| if item.is_none() { Ok(false) } else { item.extract() }).collect();
            Values::Booleans(bits(flags?.into_iter()).0)
        } else if integers == there && there > 0 {
            let cells: PyResult<Vec<i64>> = list
                .iter()
                .map(|item| if item.is_none() { Ok(0) } else { item.extract().map_err(|_| too_large(item)) })
                .collect();
            Values::Integers(cells?)
        } else if strings == 0 {
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
            strings_of(name, &list)?
        };
        Ok(Self::new(values, present.len(), present.into_iter()))
    }
}

/// Converts numpy scalars to Python numbers; other values stay unchanged.
fn to_python_number(item: Bound<'_, PyAny>) -> Bound<'_, PyAny> {
    let is_python_value = item.is_none()
        || item.is_instance_of::<PyInt>()
        || item.is_instance_of::<PyFloat>()
        || item.is_instance_of::<PyString>();
    if is_python_value {
        return item;
    }
    // numpy's kind codes for booleans, integers and floats. Its dates would become integers.
    let kind = item.getattr("dtype").and_then(|kind| kind.getattr("kind")?.extract::<char>());
    match kind {
        Ok('b' | 'i' | 'u' | 'f') => item.call_method0("item").unwrap_or(item),
        _ => item,
    }
}

fn strings_of(name: &str, list: &[Bound<'_, PyAny>]) -> PyResult<Values> {
    let holds = |what: String| PyTypeError::new_err(format!("column '{name}' holds {what}"));
    let (mut ends, mut bytes) = (vec![0_i32], Vec::new());
    for item in list {
        if let Ok(text) = item.cast::<PyString>() {
            bytes.extend_from_slice(text.extract::<String>()?.as_bytes());
        } else if !item.is_none() {
            return Err(holds(format!(
                "a `{}`; an Arrow column holds numbers, booleans or strings, all of one type",
                item.get_type().name()?
            )));
        }
        ends.push(
            i32::try_from(bytes.len()).map_err(|_| {
                holds("more than 2 GiB of text, the limit of an Arrow string column".to_owned())
            })?,
        );
    }
    Ok(Values::Strings { ends, bytes })
}

/// The only batch of the stream; it is handed out once.
struct Batch {
    columns: Vec<(CString, &'static CStr)>,
    /// `None` once handed out.
    cells: Option<Vec<Cells>>,
}

/// Memory owned by an exported schema.
struct SchemaOwned {
    name: CString,
    children: Vec<*mut ArrowSchema>,
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: `schema_of` made these boxes, and consumers release once: they check `release` first.
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

/// Memory owned by an exported array.
struct ArrayOwned {
    _cells: Option<Cells>,
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: `array_of` made these boxes, and consumers release once: they check `release` first.
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
    // SAFETY: the caller passes an unreleased stream made by `arrow_stream`, and room for a schema.
    unsafe {
        let batch = &*(*stream).private_data.cast::<Batch>();
        let children =
            batch.columns.iter().map(|(name, format)| schema_of(format, name.clone(), Vec::new())).collect();
        ptr::write(out, schema_of(c"+s", CString::default(), children));
    }
    0
}

unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: as in `get_schema`, with room for an array. An array without `release` marks the end of the stream.
    unsafe {
        let batch = &mut *(*stream).private_data.cast::<Batch>();
        let Some(cells) = batch.cells.take() else {
            ptr::write(out, std::mem::zeroed());
            return 0;
        };
        let length = cells.first().map_or(0, |cells| cells.length);
        let children =
            cells.into_iter().map(|cells| array_of(cells.length, Some(cells), Vec::new())).collect();
        ptr::write(out, array_of(length, None, children));
    }
    0
}

unsafe extern "C" fn get_last_error(_stream: *mut ArrowArrayStream) -> *const c_char {
    ptr::null()
}

unsafe extern "C" fn release_stream(stream: *mut ArrowArrayStream) {
    // SAFETY: `arrow_stream` made this box, and it is dropped once: `release` is cleared here.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<Batch>()));
        (*stream).release = None;
    }
}

/// Columns as a capsule for pyarrow, polars and other Arrow consumers. The columns in `times` are exported as timestamps,
/// those in `integers` as integers.
#[pyfunction]
#[pyo3(signature = (columns, times=None, integers=None))]
pub fn arrow_stream<'py>(
    py: Python<'py>,
    columns: &Bound<'py, PyDict>,
    times: Option<HashSet<String>>,
    integers: Option<HashSet<String>>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let (times, integers) = (times.unwrap_or_default(), integers.unwrap_or_default());
    let (mut named, mut all_cells) = (Vec::new(), Vec::new());
    for (name, column) in columns {
        let name: String = name.extract()?;
        let cells = match column.cast::<Column>() {
            Ok(column) => Cells::of_column(column.get()),
            Err(_) => Cells::of_list(&name, column.cast::<PyList>()?)?,
        };
        let cells = if times.contains(&name) {
            cells.typed(Kind::Time)
        } else if integers.contains(&name) {
            cells.typed(Kind::Integer)
        } else {
            cells
        };
        let name = CString::new(name).map_err(|_| PyTypeError::new_err("a column name contains a NUL"))?;
        named.push((name, cells.values.format()));
        all_cells.push(cells);
    }
    let batch = Box::new(Batch { columns: named, cells: Some(all_cells) });
    let stream = ArrowArrayStream {
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release_stream),
        private_data: Box::into_raw(batch).cast(),
    };
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}

/// Whether the caller is the main interpreter. Subinterpreters would share this module's types and threads with it.
pub fn is_main_interpreter(_attached: Python<'_>) -> bool {
    // SAFETY: both calls only read, and the argument proves that the thread is attached to an interpreter.
    unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) == 0 }
}
