//! The catalogs of an application as SQL for the engine: what `pg_class` and its like are made of.

use super::super::catalog::{Catalog, Procedure, Table};
use super::super::types::{self, PgType};
use std::fmt::Write;
use tidemill_model::{Field, FieldType};

pub const TABLES: &str = include_str!("tables.sql");
pub const FUNCTIONS: &str = include_str!("functions.sql");

/// The first number that an object of an application has, as in PostgreSQL.
const FIRST: usize = 16_384;
/// The numbers that a table takes: of itself, its rows' type, its index and its constraint.
const OF_TABLE: usize = 4;
const PUBLIC: usize = 2_200;
const OWNER: usize = 10;
const LANGUAGE: usize = 13_500;
const DATABASE: usize = 5;
const RECORD: u32 = 2_249;
/// The numbers of catalogs.
const PG_TYPE: usize = 1_247;
const PG_PROC: usize = 1_255;
const PG_CLASS: usize = 1_259;
const PG_CONSTRAINT: usize = 2_606;
const PG_NAMESPACE: usize = 2_615;

/// The tables and procedures that a user sees: a flag for each. All have the same numbers for all users.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    pub tables: Vec<bool>,
    pub procedures: Vec<bool>,
}

impl Seen {
    /// Returns the tables that are seen, with the number of each.
    fn tables<'a>(&'a self, catalog: &'a Catalog) -> impl Iterator<Item = (usize, &'a Table)> {
        let numbered = catalog.tables.iter().enumerate().filter(|(place, _)| self.tables[*place]);
        numbered.map(|(place, table)| (FIRST + OF_TABLE * place, table))
    }

    /// Returns the procedures that are seen, likewise.
    fn procedures<'a>(&'a self, catalog: &'a Catalog) -> impl Iterator<Item = (usize, &'a Procedure)> {
        let first = FIRST + OF_TABLE * catalog.tables.len();
        let numbered = catalog.procedures.iter().enumerate().filter(|(place, _)| self.procedures[*place]);
        numbered.map(move |(place, procedure)| (first + place, procedure))
    }
}

/// Statements that make the catalogs.
pub fn script(catalog: &Catalog, seen: &Seen, database: &str, settings: &[(&str, &str)]) -> String {
    let mut script = String::from(TABLES);
    let mut rows = Rows(&mut script);
    rows.database(database);
    settings.iter().for_each(|(name, value)| rows.setting(name, value));
    seen.tables(catalog).for_each(|(number, table)| rows.table(number, table));
    seen.procedures(catalog).for_each(|(number, procedure)| rows.procedure(number, procedure));
    names(&mut script, catalog, seen, database, settings);
    script.push_str(FUNCTIONS);
    script
}

/// Appends the macros that give the names, numbers and texts of objects.
fn names(out: &mut String, catalog: &Catalog, seen: &Seen, database: &str, settings: &[(&str, &str)]) {
    let tables = || seen.tables(catalog);
    let procedures = || seen.procedures(catalog);
    let classes = tables().flat_map(|(number, table)| [(number, table.name.clone()), (number + 2, index_name(table))]);
    let classes: Vec<(usize, String)> = classes.collect();
    let functions = || procedures().map(|(number, procedure)| (number, procedure.name.clone()));
    let by_number = |entries: &mut dyn Iterator<Item = (usize, String)>| {
        map(entries.map(|(number, name)| (number.to_string(), text(&name))), "bigint", "varchar")
    };
    let by_name = |entries: &mut dyn Iterator<Item = (usize, String)>| {
        map(entries.map(|(number, name)| (text(&name.to_lowercase()), number.to_string())), "varchar", "bigint")
    };
    let columns = tables().map(|(number, table)| {
        let names = key(table).map(|column| text(&column.name)).collect::<Vec<_>>().join(", ");
        ((number + 2).to_string(), format!("[{names}]"))
    });
    let mut define = |name: &str, parameter: &str, map: String| {
        let ty = if parameter == "n" { "bigint" } else { "varchar" };
        let _ = writeln!(out, "create macro {name}({parameter}) as {map}[{parameter}::{ty}];");
    };
    define("class_name", "n", by_number(&mut classes.iter().cloned()));
    define("table_number", "t", by_name(&mut classes.iter().cloned()));
    define("function_name", "n", by_number(&mut functions()));
    // Clients tell types of arrays by this function.
    define("function_number", "t", by_name(&mut functions().chain([(750, "array_in".to_owned())])));
    define("constraint_text", "n", by_number(&mut tables().map(|(n, table)| (n + 3, constraint_text(table)))));
    define("index_text", "n", by_number(&mut tables().map(|(n, table)| (n + 2, index_text(table)))));
    define("index_columns", "n", map(columns, "bigint", "varchar[]"));
    define("function_result", "n", by_number(&mut procedures().map(|(n, p)| (n, result(p)))));
    define("function_arguments", "n", by_number(&mut procedures().map(|(n, p)| (n, listed(&p.fields)))));
    let settings = settings.iter().map(|(name, value)| (text(&name.to_lowercase()), text(value)));
    define("setting", "t", map(settings, "varchar", "varchar"));
    let _ = writeln!(out, "create macro database_name() as {};", text(database));
}

/// Returns a map of SQL. It may be empty.
fn map(entries: impl Iterator<Item = (String, String)>, key: &str, value: &str) -> String {
    let entries: Vec<String> = entries.map(|(key, value)| format!("{key}: {value}")).collect();
    format!("(map {{{}}}::map({key}, {value}))", entries.join(", "))
}

/// Returns a literal.
fn text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Returns the fields as `pg_get_function_arguments` writes them.
fn listed(fields: &[Field]) -> String {
    let fields = fields.iter().map(|field| format!("{} {}", field.name, types::of_field(&field.ty).name()));
    fields.collect::<Vec<_>>().join(", ")
}

fn result(procedure: &Procedure) -> String {
    match procedure.returns.is_empty() {
        true => "void".to_owned(),
        false => format!("TABLE({})", listed(&procedure.returns)),
    }
}

fn key(table: &Table) -> impl Iterator<Item = &Field> {
    table.key.iter().map(|&column| &table.columns[column])
}

fn key_names(table: &Table) -> String {
    key(table).map(|column| &*column.name).collect::<Vec<_>>().join(", ")
}

fn index_name(table: &Table) -> String {
    format!("{}_pkey", table.name)
}

fn constraint_text(table: &Table) -> String {
    format!("PRIMARY KEY ({})", key_names(table))
}

fn index_text(table: &Table) -> String {
    format!("CREATE UNIQUE INDEX {} ON public.{} USING btree ({})", index_name(table), table.name, key_names(table))
}

/// Appends rows.
struct Rows<'a>(&'a mut String);

impl Rows<'_> {
    fn row(&mut self, table: &str, columns: &str, values: &[String]) {
        let _ = writeln!(self.0, "insert into {table} ({columns}) values ({});", values.join(", "));
    }

    fn database(&mut self, name: &str) {
        let columns = "oid, datname, datdba, encoding, datlocprovider, datallowconn, datconnlimit, dattablespace, \
                       datcollate, datctype";
        let (encoding, allows, unlimited, space) = ("6", "true", "-1", "1663");
        let values =
            [&DATABASE.to_string(), &text(name), &OWNER.to_string(), encoding, "'c'", allows, unlimited, space];
        let values: Vec<String> =
            values.iter().map(ToString::to_string).chain([text("C.UTF-8"), text("C.UTF-8")]).collect();
        self.row("pg_database", columns, &values);
    }

    fn setting(&mut self, name: &str, value: &str) {
        let values = [text(name), text(value), text("user"), text("string"), text("default"), text(value), text(value)];
        self.row("pg_settings", "name, setting, context, vartype, source, boot_val, reset_val", &values);
    }

    fn class(&mut self, number: usize, name: &str, kind: &str, rest: [usize; 3]) {
        let [row_type, method, columns] = rest;
        let names = "oid, relname, relnamespace, relowner, relkind, reltype, relam, relnatts, reltuples, relhasindex, \
                     relpersistence, relreplident, relispopulated";
        let is_table = kind == "r";
        let replica = if is_table { "d" } else { "n" };
        let numbers = [number.to_string(), text(name), PUBLIC.to_string(), OWNER.to_string(), text(kind)];
        let more = [row_type, method, columns].map(|number| number.to_string());
        let flags = ["-1".to_owned(), is_table.to_string(), text("p"), text(replica), "true".to_owned()];
        self.row("pg_class", names, &[&numbers[..], &more, &flags].concat());
    }

    fn table(&mut self, number: usize, table: &Table) {
        let (row_type, index, constraint) = (number + 1, number + 2, number + 3);
        self.class(number, &table.name, "r", [row_type, 2, table.columns.len()]);
        self.class(index, &index_name(table), "i", [0, 403, table.key.len()]);
        for (place, column) in table.columns.iter().enumerate() {
            self.attribute(number, place + 1, column);
        }
        for (place, column) in key(table).enumerate() {
            self.attribute(index, place + 1, column);
        }
        let places = table.key.iter().map(|column| (column + 1).to_string()).collect::<Vec<_>>().join(", ");
        let zeros = vec!["0"; table.key.len()].join(", ");
        let (places, zeros) = (format!("[{places}]"), format!("[{zeros}]"));
        let count = table.key.len().to_string();
        let names = "oid, typname, typnamespace, typowner, typlen, typtype, typcategory, typdelim, typrelid, typisdefined, \
                     typalign, typstorage";
        let mut values =
            vec![row_type.to_string(), text(&table.name), PUBLIC.to_string(), OWNER.to_string(), "-1".into()];
        values.extend([text("c"), text("C"), text(","), number.to_string(), "true".into(), text("d"), text("x")]);
        self.row("pg_type", names, &values);
        let names = "indexrelid, indrelid, indnatts, indnkeyatts, indisunique, indisprimary, indimmediate, indisvalid, \
                     indisready, indislive, indkey, indcollation, indclass, indoption";
        let mut values = vec![index.to_string(), number.to_string(), count.clone(), count];
        values.extend(vec!["true".to_owned(); 6]);
        values.extend([places.clone(), zeros.clone(), zeros.clone(), zeros]);
        self.row("pg_index", names, &values);
        let names =
            "oid, conname, connamespace, contype, convalidated, conrelid, conindid, conislocal, connoinherit, conkey";
        let mut values = vec![constraint.to_string(), text(&index_name(table)), PUBLIC.to_string(), text("p")];
        values.extend(["true".into(), number.to_string(), index.to_string(), "true".into(), "true".into(), places]);
        self.row("pg_constraint", names, &values);
        self.depends([PG_CLASS, number], [PG_NAMESPACE, PUBLIC, 0], "n");
        self.depends([PG_TYPE, row_type], [PG_CLASS, number, 0], "i");
        for column in &table.key {
            self.depends([PG_CONSTRAINT, constraint], [PG_CLASS, number, column + 1], "a");
        }
        self.depends([PG_CLASS, index], [PG_CONSTRAINT, constraint, 0], "i");
    }

    /// Adds the row that says that an object needs another one. Each is preceded by its catalog, and the other followed
    /// by its column or 0.
    fn depends(&mut self, object: [usize; 2], on: [usize; 3], kind: &str) {
        let numbers = object.iter().chain(&on).map(ToString::to_string);
        let values: Vec<String> = numbers.chain([text(kind)]).collect();
        self.row("pg_depend", "classid, objid, refclassid, refobjid, refobjsubid, deptype", &values);
    }

    fn attribute(&mut self, of: usize, place: usize, column: &Field) {
        let ty = types::of_field(&column.ty);
        let is_nullable = matches!(column.ty, FieldType::Scalar(ty) if ty.nullable);
        let collation = if ty == PgType::Text { 100 } else { 0 };
        let names = "attrelid, attname, atttypid, attlen, attnum, atttypmod, attnotnull, attislocal, attstattarget, attcollation, \
                     attstorage, attidentity, attgenerated";
        let mut values = vec![of.to_string(), text(&column.name), ty.oid().to_string(), ty.size().to_string()];
        values.extend([place.to_string(), ty.modifier().to_string(), (!is_nullable).to_string(), "true".into()]);
        values.extend([
            "-1".into(),
            collation.to_string(),
            text(if ty.size() < 0 { "x" } else { "p" }),
            text(""),
            text(""),
        ]);
        self.row("pg_attribute", names, &values);
    }

    fn procedure(&mut self, number: usize, procedure: &Procedure) {
        let Procedure { name, fields, returns, .. } = procedure;
        let oids =
            |fields: &[Field]| fields.iter().map(|f| types::of_field(&f.ty).oid().to_string()).collect::<Vec<_>>();
        let all: Vec<Field> = fields.iter().chain(returns).cloned().collect();
        let modes = fields.iter().map(|_| text("i")).chain(returns.iter().map(|_| text("t"))).collect::<Vec<_>>();
        let argument_names: Vec<String> = all.iter().map(|field| text(&field.name)).collect();
        let result = match &returns[..] {
            [] => PgType::Void.oid(),
            [one] => types::of_field(&one.ty).oid(),
            _ => RECORD,
        };
        let names = "oid, proname, pronamespace, proowner, prolang, prokind, provolatile, proparallel, proretset, pronargs, \
                     prorettype, proargtypes, proallargtypes, proargmodes, proargnames, prosrc, prorows";
        let mut values =
            vec![number.to_string(), text(name), PUBLIC.to_string(), OWNER.to_string(), LANGUAGE.to_string()];
        values.extend([text("f"), text("v"), text("u"), (!returns.is_empty()).to_string(), fields.len().to_string()]);
        values.extend([result.to_string(), text(&oids(fields).join(" "))]);
        values.push(if returns.is_empty() { "null".into() } else { format!("[{}]", oids(&all).join(", ")) });
        values.push(if returns.is_empty() { "null".into() } else { format!("[{}]", modes.join(", ")) });
        values.push(if all.is_empty() { "null".into() } else { format!("[{}]", argument_names.join(", ")) });
        values.extend([text(name), "1".to_owned()]);
        self.row("pg_proc", names, &values);
        self.depends([PG_PROC, number], [PG_NAMESPACE, PUBLIC, 0], "n");
    }
}
