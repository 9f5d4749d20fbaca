//! Single values between Python and the model, for records that are given or taken as Python objects.

use crate::frame::Frame;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyEllipsis, PyFloat, PyInt, PyList, PyString, PyTuple};
use tidemill_io::BadRecord;
use tidemill_model::arrow::batch_of;
use tidemill_model::{ColumnType, FieldType, ListItem, Schema, Type, Value, format_decimal, parse_decimal};

/// Most characters of a bad record that are kept.
const RECORD_CHARS_MAX: usize = 400;

/// Returns a batch of Python values, one list per field of the schema. `...` stands for a missing value. A row that
/// does not fit is left out and becomes a bad record of `origin`, numbered from `first`.
#[pyfunction]
pub fn batch_from_columns(
    schema_json: &str,
    columns: Vec<Bound<'_, PyList>>,
    origin: String,
    first: u64,
    py: Python<'_>,
) -> PyResult<Frame> {
    let schema: Schema = serde_json::from_str(schema_json)
        .map_err(|error| PyValueError::new_err(format!("this is not a schema: {error}")))?;
    if columns.len() != schema.fields.len() {
        let message = format!("{} columns for a schema of {}", columns.len(), schema.fields.len());
        return Err(PyValueError::new_err(message));
    }
    let convert = FromPython::new(py)?;
    let (mut rows, mut bad) = (Vec::new(), Vec::new());
    for index in 0..columns.first().map_or(0, |c| c.len()) {
        let cells: Vec<Bound<'_, PyAny>> = columns.iter().map(|c| c.get_item(index)).collect::<PyResult<_>>()?;
        match convert.row(&schema, &cells) {
            Ok(row) => rows.push(row),
            Err((column, reason)) => bad.push(BadRecord {
                origin: Some(origin.clone()),
                line: Some(first + index as u64),
                column: Some(schema.fields[column].name.clone()),
                reason,
                record: Some(shown(&schema, &cells)),
                after: rows.len() as u64,
            }),
        }
    }
    let batch = batch_of(&schema, &rows);
    Ok(Frame::new(schema, vec![batch], bad))
}

/// Returns a row of Python values, or the column that does not fit and why.
pub fn row_of(
    py: Python<'_>,
    schema: &Schema,
    cells: &[Bound<'_, PyAny>],
) -> PyResult<Result<Vec<Value>, (usize, String)>> {
    Ok(FromPython::new(py)?.row(schema, cells))
}

/// Returns a record as text, as far as its values have one.
fn shown(schema: &Schema, cells: &[Bound<'_, PyAny>]) -> String {
    let cell = |(field, value): (&tidemill_model::Field, &Bound<'_, PyAny>)| {
        let text = value.repr().map_or("?".into(), |r| r.to_string_lossy().into_owned());
        format!("'{}': {text}", field.name)
    };
    let given = schema.fields.iter().zip(cells).filter(|(_, c)| !is_missing(c));
    let whole = format!("{{{}}}", given.map(cell).collect::<Vec<_>>().join(", "));
    whole.chars().take(RECORD_CHARS_MAX).collect()
}

fn is_missing(value: &Bound<'_, PyAny>) -> bool {
    value.is_exact_instance_of::<PyEllipsis>()
}

/// The instant of a `datetime`.
enum Instant {
    /// Microseconds since 1970.
    At(i64),
    /// pandas' `NaT`.
    Never,
}

/// Conversions from Python, with the functions that they need.
struct FromPython<'py> {
    decimal: Bound<'py, PyAny>,
    datetime: Bound<'py, PyAny>,
    microseconds: Bound<'py, PyAny>,
}

impl<'py> FromPython<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        Ok(FromPython {
            decimal: py.import("decimal")?.getattr("Decimal")?,
            datetime: py.import("datetime")?.getattr("datetime")?,
            microseconds: py.import("tidemill.times")?.getattr("time_to_microseconds")?,
        })
    }

    /// Returns a row, or the column that does not fit and why.
    fn row(&self, schema: &Schema, cells: &[Bound<'py, PyAny>]) -> Result<Vec<Value>, (usize, String)> {
        let field = |(i, (field, cell)): (usize, (&tidemill_model::Field, &Bound<'py, PyAny>))| {
            self.field(&field.ty, cell).map_err(|reason| (i, reason))
        };
        schema.fields.iter().zip(cells).enumerate().map(field).collect()
    }

    fn field(&self, ty: &FieldType, value: &Bound<'py, PyAny>) -> Result<Value, String> {
        if is_missing(value) {
            return Err("the column is missing".into());
        }
        match ty {
            FieldType::Scalar(ty) => self.scalar(*ty, value),
            FieldType::List(item) => {
                let list = value.cast::<PyList>().map_err(|_| format!("a list is wanted, not {}", kind(value)))?;
                list.iter().map(|e| self.element(item, &e)).collect::<Result<_, _>>().map(Value::List)
            }
        }
    }

    fn element(&self, item: &ListItem, value: &Bound<'py, PyAny>) -> Result<Vec<Value>, String> {
        match item {
            ListItem::Scalar(ty) => Ok(vec![self.scalar(*ty, value)?]),
            ListItem::Struct(columns) => {
                let tuple = value.cast::<PyTuple>().map_err(|_| format!("an element is {}", kind(value)))?;
                let column = |((name, ty), value): (&(String, ColumnType), Bound<'py, PyAny>)| {
                    let scalar =
                        if is_missing(&value) { Err("it is missing".into()) } else { self.scalar(*ty, &value) };
                    scalar.map_err(|reason| format!("an element's '{name}': {reason}"))
                };
                columns.iter().zip(tuple.iter()).map(column).collect()
            }
        }
    }

    fn scalar(&self, ty: ColumnType, value: &Bound<'py, PyAny>) -> Result<Value, String> {
        if value.is_none() {
            return if ty.nullable { Ok(Value::Null) } else { Err(format!("{} is wanted, not None", ty.ty)) };
        }
        let converted = match ty.ty {
            Type::Bool => value.extract().ok().map(Value::Bool),
            Type::Int => return self.int(value).map(Value::Int),
            Type::Float if !value.is_instance_of::<PyBool>() && !value.is_instance_of::<PyString>() => {
                let number = value.is_instance_of::<PyFloat>() || !self.is_decimal(value);
                number.then(|| value.extract().ok()).flatten().map(Value::Float)
            }
            Type::Str => text(value)?.map(Value::Str),
            Type::Bytes if value.is_instance_of::<PyBytes>() || value.is_instance_of::<PyByteArray>() => {
                value.extract().ok().map(Value::Bytes)
            }
            Type::Time => match self.time(value)? {
                Some(Instant::At(microseconds)) => Some(Value::Time(microseconds)),
                Some(Instant::Never) if ty.nullable => Some(Value::Null),
                Some(Instant::Never) => return Err(format!("{} is wanted, not NaT", ty.ty)),
                None => None,
            },
            Type::Decimal { digits, scale } => self.decimal(value, digits, scale)?.map(Value::Decimal),
            _ => None,
        };
        converted.ok_or_else(|| format!("{} is wanted, not {}", ty.ty, kind(value)))
    }

    fn int(&self, value: &Bound<'py, PyAny>) -> Result<i64, String> {
        if value.is_instance_of::<PyBool>() || value.is_instance_of::<PyFloat>() {
            return Err(format!("int is wanted, not {}", kind(value)));
        }
        value.extract().map_err(|_| match value.is_instance_of::<PyInt>() {
            true => "the integer does not fit 64 bits".into(),
            false => format!("int is wanted, not {}", kind(value)),
        })
    }

    /// Returns the instant of a `datetime`, or of microseconds since 1970 as an int. pandas' `NaT` is a `datetime` that
    /// does not equal itself.
    fn time(&self, value: &Bound<'py, PyAny>) -> Result<Option<Instant>, String> {
        if value.is_instance(&self.datetime).unwrap_or(false) {
            if value.ne(value).unwrap_or(false) {
                return Ok(Some(Instant::Never));
            }
            let microseconds = self.microseconds.call1((value,)).and_then(|v| v.extract());
            return microseconds.map(|at| Some(Instant::At(at))).map_err(|error| error.to_string());
        }
        match value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
            true => self.int(value).map(|at| Some(Instant::At(at))),
            false => Ok(None),
        }
    }

    fn is_decimal(&self, value: &Bound<'py, PyAny>) -> bool {
        value.is_instance(&self.decimal).unwrap_or(false)
    }

    fn decimal(&self, value: &Bound<'py, PyAny>, digits: u8, scale: u8) -> Result<Option<i64>, String> {
        let integer = value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>();
        if !integer && !self.is_decimal(value) {
            return Ok(None);
        }
        let format = if integer { "d" } else { "f" };
        let text = value.call_method1("__format__", (format,)).and_then(|t| t.extract::<String>());
        let text = text.map_err(|error| error.to_string())?;
        let unscaled = parse_decimal(&text, digits, scale);
        unscaled.map(Some).ok_or_else(|| format!("{text} does not fit Decimal({digits}, {scale})"))
    }
}

fn text(value: &Bound<'_, PyAny>) -> Result<Option<String>, String> {
    match value.cast::<PyString>() {
        Ok(text) => text.to_cow().map(|t| Some(t.into_owned())).map_err(|_| "the text is not UTF-8".into()),
        Err(_) => Ok(None),
    }
}

fn kind(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or("an object".into(), |n| n.to_string())
}

/// Conversions to Python, with the objects that they need.
pub struct ToPython<'py> {
    py: Python<'py>,
    decimal: Bound<'py, PyAny>,
    timedelta: Bound<'py, PyAny>,
    epoch: Bound<'py, PyAny>,
}

impl<'py> ToPython<'py> {
    /// Looks the functions up.
    pub fn new(py: Python<'py>) -> PyResult<Self> {
        let datetime = py.import("datetime")?;
        let utc = datetime.getattr("timezone")?.getattr("utc")?;
        let epoch = datetime.getattr("datetime")?.call1((1970, 1, 1, 0, 0, 0, 0, utc))?;
        let decimal = py.import("decimal")?.getattr("Decimal")?;
        Ok(ToPython { py, decimal, timedelta: datetime.getattr("timedelta")?, epoch })
    }

    fn scalar(&self, ty: Type, value: &Value) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        match (value, ty) {
            (Value::Null, _) => Ok(py.None().into_bound(py)),
            (Value::Bool(v), _) => Ok(PyBool::new(py, *v).to_owned().into_any()),
            (Value::Int(v), _) => Ok(v.into_pyobject(py)?.into_any()),
            (Value::Float(v), _) => Ok(PyFloat::new(py, *v).into_any()),
            (Value::Str(v), _) => Ok(PyString::new(py, v).into_any()),
            (Value::Bytes(v), _) => Ok(PyBytes::new(py, v).into_any()),
            (Value::Decimal(v), Type::Decimal { scale, .. }) => self.decimal.call1((format_decimal(*v, scale),)),
            (Value::Time(v), _) => self.epoch.call_method1("__add__", (self.timedelta.call1((0, 0, *v))?,)),
            (other, ty) => Err(PyValueError::new_err(format!("{other} in a column of {ty}"))),
        }
    }

    fn field(&self, ty: &FieldType, value: &Value) -> PyResult<Bound<'py, PyAny>> {
        match (ty, value) {
            (FieldType::Scalar(ty), value) => self.scalar(ty.ty, value),
            (FieldType::List(item), Value::List(elements)) => {
                let list = PyList::empty(self.py);
                for element in elements {
                    list.append(self.element(item, element)?)?;
                }
                Ok(list.into_any())
            }
            (FieldType::List(_), other) => Err(PyValueError::new_err(format!("{other} where a list belongs"))),
        }
    }

    fn element(&self, item: &ListItem, values: &[Value]) -> PyResult<Bound<'py, PyAny>> {
        match item {
            ListItem::Scalar(ty) => self.scalar(ty.ty, &values[0]),
            ListItem::Struct(columns) => {
                let dict = PyDict::new(self.py);
                for ((name, ty), value) in columns.iter().zip(values) {
                    dict.set_item(name, self.scalar(ty.ty, value)?)?;
                }
                Ok(dict.into_any())
            }
        }
    }
}

/// Returns a row as a dict.
pub fn dict_of<'py>(convert: &ToPython<'py>, schema: &Schema, row: &[Value]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(convert.py);
    for (field, value) in schema.fields.iter().zip(row) {
        dict.set_item(&field.name, convert.field(&field.ty, value)?)?;
    }
    Ok(dict)
}
