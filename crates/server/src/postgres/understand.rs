//! From the text of SQL to what it means: calls, reads by key or of whole tables, and what clients say around them.
//!
//! # Invariant
//!
//! Each part of a statement is looked at: what is not known here is refused, and never left out.

use super::backend::Described;
use super::catalog::{Catalog, Procedure, described, listed};
use super::error::{PgError, PgResult, code};
use super::expressions::{
    argument_parts, cast_type, conjuncts, constant, fact, literal, no_column, placeholder, projected, type_named,
};
use super::names::{Name, Relation, column_name, object_name, relation, text_of};
use super::settings;
use super::statement::{Argument, Call, ForEngine, Prepared, Read, Statement};
use super::types::{self, PgType};
use super::words::Words;
use sqlparser::ast::{
    self, Expr, Function, FunctionArg, FunctionArguments, GroupByExpr, LimitClause, Query, Select, SelectFlavor,
    SelectItem, SetExpr, TableFactor,
};
use sqlparser::tokenizer::Token;
use tidemill_model::{Field, FieldType};

/// The most parameters of a statement, as in PostgreSQL.
const PARAMETERS_MAX: usize = 65_535;

/// Returns the only statement of a text, if there is one.
pub fn single(statements: &[ast::Statement]) -> PgResult<Option<&ast::Statement>> {
    match statements {
        [] => Ok(None),
        [statement] => Ok(Some(statement)),
        _ => Err(PgError::new(code::SYNTAX, "several statements are for simple queries without parameters")),
    }
}

/// Returns a statement, given the types of parameters that the client declares. `sql`: the text of a query that an
/// engine may answer if it is not understood here.
pub fn prepare(
    catalog: &Catalog,
    statement: Option<&ast::Statement>,
    declared: &[u32],
    sql: Option<&str>,
) -> PgResult<Prepared> {
    for oid in declared {
        if PgType::of_oid(*oid).is_none() {
            return Err(PgError::not_supported(format!("parameters of the type with number {oid}")));
        }
    }
    let parameters = declared.iter().map(|&oid| (oid != 0).then_some(oid)).collect();
    let mut reading = Reading { catalog, parameters, names: Vec::new(), has_wrong_arguments: false };
    let (statement, columns) = match statement {
        None => (Statement::Empty, None),
        Some(statement) => match (reading.statement(statement), sql) {
            // Errors in a call are final: the engine has no procedures, so it need not be asked.
            (Err(refusal), Some(sql))
                if matches!(statement, ast::Statement::Query(_)) && !reading.has_wrong_arguments =>
            {
                return for_engine(sql, declared, refusal);
            }
            (understood, _) => understood?,
        },
    };
    let known = |(place, oid): (usize, Option<u32>)| {
        let unknown = || PgError::new(code::UNKNOWN_TYPE, format!("parameter ${} is not used", place + 1));
        oid.ok_or_else(unknown)
    };
    let parameters = reading.parameters.into_iter().enumerate().map(known).collect::<PgResult<_>>()?;
    Ok(Prepared { statement, parameters, names: reading.names, columns, parent: None })
}

/// Returns a query for the engine. A parameter is of the type that the client declares, that it is cast to, or text.
fn for_engine(sql: &str, declared: &[u32], refusal: PgError) -> PgResult<Prepared> {
    let words = Words::of(sql)?;
    let tokens: Vec<&Token> = words.tokens().collect();
    let mut parameters = declared.to_vec();
    for (at, token) in tokens.iter().enumerate() {
        let Token::Placeholder(name) = token else { continue };
        let place = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
        let Some(place) = place.filter(|place| (1..=PARAMETERS_MAX).contains(place)) else { return Err(refusal) };
        if parameters.len() < place {
            parameters.resize(place, 0);
        }
        if parameters[place - 1] == 0
            && let [Token::DoubleColon, Token::Word(ty), rest @ ..] = &tokens[at + 1..]
        {
            let is_array = matches!(rest, [Token::LBracket, Token::RBracket, ..]);
            let name = if is_array { format!("{}[]", ty.value) } else { ty.value.clone() };
            parameters[place - 1] = type_named(&name).map_or(0, PgType::oid);
        }
    }
    let known = |oid: u32| if oid == 0 { PgType::Text.oid() } else { oid };
    let parameters = parameters.into_iter().map(known).collect();
    let statement = Statement::Query(ForEngine { sql: sql.to_owned(), refusal });
    Ok(Prepared { statement, parameters, names: Vec::new(), columns: None, parent: None })
}

type Understood = (Statement, Option<Vec<Described>>);

struct Reading<'a> {
    catalog: &'a Catalog,
    /// The types of parameters, as far as they are known.
    parameters: Vec<Option<u32>>,
    /// The fields and columns that parameters are given to.
    names: Vec<(usize, String)>,
    /// A flag: whether it calls a procedure that is there with other arguments than that has.
    has_wrong_arguments: bool,
}

impl Reading<'_> {
    fn statement(&mut self, statement: &ast::Statement) -> PgResult<Understood> {
        use ast::Statement as Sql;
        let plain = |statement| Ok((statement, None));
        match statement {
            Sql::Query(query) => self.query(query),
            Sql::Call(function) => self.call_of(function, None, false),
            Sql::StartTransaction { modes, statements, exception, .. }
                if statements.is_empty() && exception.is_none() =>
            {
                plain(Statement::Begin { read_only: settings::read_only(modes).unwrap_or(false) })
            }
            Sql::Commit { chain: false, .. } => plain(Statement::Commit),
            Sql::Rollback { chain: false, savepoint: None } => plain(Statement::Rollback),
            Sql::Rollback { chain: false, savepoint: Some(name) } => plain(Statement::RollbackTo(text_of(name))),
            Sql::Savepoint { name } => plain(Statement::Savepoint(text_of(name))),
            Sql::ReleaseSavepoint { name } => plain(Statement::Release(text_of(name))),
            Sql::Set(set) => plain(settings::set_of(set)?),
            Sql::Reset(reset) => plain(match &reset.reset {
                ast::Reset::ALL => Statement::ResetAll,
                ast::Reset::SessionAuthorization => Statement::Accepted("RESET"),
                ast::Reset::ConfigurationParameter(name) => Statement::Set(settings::name_of(name)?, None),
            }),
            Sql::ShowVariable { variable } => {
                let name = settings::shown_name(&variable.iter().map(text_of).collect::<Vec<_>>());
                let column = Described { name: name.clone(), ty: PgType::Text };
                Ok((Statement::Show(name), Some(vec![column])))
            }
            Sql::Deallocate { name, .. } => {
                let name = text_of(name);
                plain(Statement::Deallocate((name != "all").then_some(name)))
            }
            Sql::Discard { object_type: ast::DiscardObject::ALL } => plain(Statement::DiscardAll),
            Sql::Discard { .. } => plain(Statement::Accepted("DISCARD")),
            Sql::Close { cursor: ast::CloseCursor::All } => plain(Statement::Accepted("CLOSE CURSOR ALL")),
            Sql::LISTEN { channel } => plain(Statement::Listen(text_of(channel))),
            Sql::UNLISTEN { channel } => plain(Statement::Unlisten((channel.value != "*").then(|| text_of(channel)))),
            other => Err(self.refused(other)),
        }
    }

    /// Returns the error for a statement that this server does not have.
    fn refused(&self, statement: &ast::Statement) -> PgError {
        use ast::Statement as Sql;
        let procedures = self.catalog.procedure_names();
        let hint = format!("rows are changed by procedures: SELECT * FROM procedure(...); there are: {procedures}");
        match statement {
            Sql::Insert(_) => PgError::not_supported("INSERT").hint(hint),
            Sql::Update(_) => PgError::not_supported("UPDATE").hint(hint),
            Sql::Delete(_) => PgError::not_supported("DELETE").hint(hint),
            Sql::Copy { to: true, .. } => {
                let hint = "rows are read with SELECT; GET /tables/NAME over HTTP gives all of a table";
                PgError::not_supported("COPY TO").hint(hint)
            }
            Sql::Merge(_) | Sql::Truncate(_) | Sql::Copy { .. } => {
                PgError::not_supported(first_word(statement)).hint(hint)
            }
            other => PgError::not_supported(first_word(other)),
        }
    }

    fn query(&mut self, query: &Query) -> PgResult<Understood> {
        let Query {
            with,
            body,
            order_by,
            limit_clause,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators,
        } = query;
        let refusals = [
            (with.is_some(), "WITH"),
            (order_by.is_some(), "ORDER BY"),
            (fetch.is_some(), "FETCH"),
            (!locks.is_empty(), "FOR UPDATE and FOR SHARE"),
            (for_clause.is_some() || settings.is_some() || format_clause.is_some(), "clauses of other systems"),
            (!pipe_operators.is_empty(), "pipes"),
        ];
        none_of(&refusals)?;
        let SetExpr::Select(select) = &**body else {
            return Err(PgError::not_supported("VALUES, UNION and the like"));
        };
        self.select(select, limit_clause.as_ref())
    }

    fn select(&mut self, select: &Select, limit: Option<&LimitClause>) -> PgResult<Understood> {
        check_clauses(select)?;
        let where_it_is = select.selection.as_ref();
        match &select.from[..] {
            [] => {
                none_of(&[
                    (limit.is_some(), "LIMIT without a table"),
                    (where_it_is.is_some(), "WHERE without a table"),
                ])?;
                self.row(&select.projection)
            }
            [from] if from.joins.is_empty() => match &from.relation {
                TableFactor::Table { args: Some(args), .. } => {
                    let from = relation(&from.relation)?;
                    none_of(&[(limit.is_some(), "LIMIT of a call"), (where_it_is.is_some(), "WHERE of a call")])?;
                    none_of(&[(args.settings.is_some(), "SETTINGS")])?;
                    self.call(&from, &args.args, Some(&select.projection), true)
                }
                TableFactor::Table { .. } => {
                    let from = relation(&from.relation)?;
                    self.read(&from, &select.projection, where_it_is, limit)
                }
                _ => Err(PgError::not_supported("anything but a table or a call after FROM")),
            },
            _ => Err(PgError::not_supported("joins")),
        }
    }

    /// Understands a `SELECT` without a table: `SELECT 1`, `SELECT version()`, `SELECT deposit(...)`.
    fn row(&mut self, items: &[SelectItem]) -> PgResult<Understood> {
        if let [
            SelectItem::UnnamedExpr(Expr::Function(function))
            | SelectItem::ExprWithAlias { expr: Expr::Function(function), .. },
        ] = items
            && fact(function).is_none()
        {
            return self.call_of(function, None, true);
        }
        let mut constants = Vec::with_capacity(items.len());
        let mut columns = Vec::with_capacity(items.len());
        for item in items {
            let (expression, alias) = match item {
                SelectItem::UnnamedExpr(expression) => (expression, None),
                SelectItem::ExprWithAlias { expr, alias } => (expr, Some(text_of(alias))),
                _ => return Err(PgError::not_supported("* without a table")),
            };
            let (constant, name, ty) = constant(expression)?;
            constants.push(constant);
            columns.push(Described { name: alias.unwrap_or(name), ty });
        }
        Ok((Statement::Row(constants), Some(columns)))
    }

    /// Returns a call as a function of an expression or of `CALL`.
    fn call_of(&mut self, function: &Function, items: Option<&[SelectItem]>, is_select: bool) -> PgResult<Understood> {
        let Function { name, parameters, args, within_group, filter, null_treatment, over, .. } = function;
        none_of(&[
            (!matches!(parameters, FunctionArguments::None), "parameters of a function"),
            (!within_group.is_empty() || filter.is_some() || null_treatment.is_some(), "clauses of aggregates"),
            (over.is_some(), "OVER"),
        ])?;
        let arguments: &[FunctionArg] = match args {
            FunctionArguments::None => &[],
            FunctionArguments::Subquery(_) => return Err(PgError::not_supported("queries as arguments")),
            FunctionArguments::List(list) => {
                none_of(&[
                    (list.duplicate_treatment.is_some(), "DISTINCT within a call"),
                    (!list.clauses.is_empty(), "clauses within a call"),
                ])?;
                &list.args
            }
        };
        self.call(&Relation { name: object_name(name)?, alias: None }, arguments, items, is_select)
    }

    fn call(
        &mut self,
        from: &Relation,
        given: &[FunctionArg],
        items: Option<&[SelectItem]>,
        is_select: bool,
    ) -> PgResult<Understood> {
        let (catalog, name) = (self.catalog, &from.name);
        let found = catalog.procedures.iter().position(|procedure| name.is(&procedure.name));
        if found.is_none() && name.is(&catalog.keep.name) {
            return self.keep(from, given, items);
        }
        let number = found.ok_or_else(|| {
            let there = catalog.procedure_names();
            PgError::new(code::NO_FUNCTION, format!("there is no procedure '{name}'; procedures: {there}"))
        })?;
        let procedure = &catalog.procedures[number];
        self.has_wrong_arguments = true;
        let arguments = self.arguments(procedure, given)?;
        self.has_wrong_arguments = false;
        let columns = projected(items, &procedure.returns, from.qualifier(&procedure.name))?;
        let shown: Vec<Described> = columns
            .iter()
            .map(|(column, name)| Described { name: name.clone(), ..described(&procedure.returns[*column]) })
            .collect();
        // CALL of what returns nothing has no rows.
        let shown = (is_select || !shown.is_empty()).then_some(shown);
        let columns = columns.into_iter().map(|(column, _)| column).collect();
        Ok((Statement::Call(Call { procedure: number, arguments, columns, is_select }), shown))
    }

    /// Understands `SELECT tidemill_savepoint('monday')`.
    fn keep(&mut self, from: &Relation, given: &[FunctionArg], items: Option<&[SelectItem]>) -> PgResult<Understood> {
        let procedure = &self.catalog.keep;
        self.has_wrong_arguments = true;
        let name = self.arguments(procedure, given)?.into_iter().next().map(|(_, argument)| argument);
        self.has_wrong_arguments = false;
        let columns = projected(items, &procedure.returns, from.qualifier(&procedure.name))?;
        let shown = columns
            .iter()
            .map(|(column, name)| Described { name: name.clone(), ..described(&procedure.returns[*column]) });
        let shown = Some(shown.collect());
        Ok((Statement::Keep(name, columns.into_iter().map(|(column, _)| column).collect()), shown))
    }

    fn arguments(&mut self, procedure: &Procedure, given: &[FunctionArg]) -> PgResult<Vec<(usize, Argument)>> {
        let mut arguments: Vec<(usize, Argument)> = Vec::with_capacity(given.len());
        let mut named = false;
        for one in given {
            let (name, argument) = argument_parts(one)?;
            if self.is_void(argument) {
                continue;
            }
            named |= name.is_some();
            let field = match &name {
                Some(name) => procedure.fields.iter().position(|field| name.is(&field.name)),
                None if named => {
                    let message = "an argument without a name follows one with a name";
                    return Err(PgError::new(code::SYNTAX, message).hint("name it, too"));
                }
                None => Some(arguments.len()).filter(|&place| place < procedure.fields.len()),
            };
            let Some(field) = field else { return Err(no_argument(procedure, name.as_ref(), given.len())) };
            let Field { name, ty } = &procedure.fields[field];
            if arguments.iter().any(|(other, _)| *other == field) {
                let message = format!("argument '{name}' of {} is given twice", procedure.name);
                return Err(PgError::new(code::NO_FUNCTION, message).column(name));
            }
            let argument = self.argument(argument, types::of_field(ty)).map_err(|error| error.column(name))?;
            self.name(&argument, name);
            arguments.push((field, argument));
        }
        let is_missing = |(number, field): &(usize, &Field)| {
            let required = !matches!(field.ty, FieldType::Scalar(ty) if ty.nullable);
            required && arguments.iter().all(|(given, _)| given != number)
        };
        match procedure.fields.iter().enumerate().find(is_missing) {
            None => Ok(arguments),
            Some((_, missing)) => {
                let message = format!("argument '{}' of {} is missing", missing.name, signature(procedure));
                Err(PgError::new(code::NO_FUNCTION, message).column(&missing.name))
            }
        }
    }

    /// Returns whether an expression is the parameter that JDBC puts in the place of a result.
    fn is_void(&mut self, expression: &Expr) -> bool {
        let place = placeholder(expression);
        place.is_some_and(|place| self.parameters.get(place).copied().flatten() == Some(PgType::Void.oid()))
    }

    /// Returns a literal or a parameter, which is of this type unless it says otherwise.
    fn argument(&mut self, expression: &Expr, target: PgType) -> PgResult<Argument> {
        if let Some(place) = placeholder(expression) {
            self.parameter(place, target);
            return Ok(Argument::Parameter(place, None));
        }
        match expression {
            Expr::Nested(inner) => self.argument(inner, target),
            Expr::Cast { expr, data_type, format: None, kind: ast::CastKind::Cast | ast::CastKind::DoubleColon } => {
                let ty = cast_type(data_type)?;
                if let Some(place) = placeholder(expr) {
                    self.parameter(place, ty);
                    return Ok(Argument::Parameter(place, Some(ty)));
                }
                match self.argument(expr, ty)? {
                    Argument::Given(given) => Ok(Argument::Given(given.cast(ty)?)),
                    Argument::Parameter(place, _) => {
                        Err(PgError::not_supported(format!("several casts of parameter ${}", place + 1)))
                    }
                }
            }
            other => literal(other).map(Argument::Given),
        }
    }

    /// Notes what a parameter is given to.
    fn name(&mut self, argument: &Argument, name: &str) {
        if let Argument::Parameter(place, _) = argument {
            self.names.push((*place, name.to_owned()));
        }
    }

    fn parameter(&mut self, place: usize, ty: PgType) {
        if self.parameters.len() <= place {
            self.parameters.resize(place + 1, None);
        }
        let known = &mut self.parameters[place];
        if known.is_none_or(|oid| PgType::of_oid(oid) == Some(PgType::Unknown)) {
            *known = Some(ty.oid());
        }
    }

    fn read(
        &mut self,
        from: &Relation,
        items: &[SelectItem],
        selection: Option<&Expr>,
        limit: Option<&LimitClause>,
    ) -> PgResult<Understood> {
        let (catalog, name) = (self.catalog, &from.name);
        let found = catalog.tables.iter().position(|table| name.is(&table.name));
        let number = found.ok_or_else(|| {
            let there = catalog.table_names();
            PgError::new(code::NO_TABLE, format!("there is no table '{name}'; tables: {there}"))
        })?;
        let table = &catalog.tables[number];
        let columns = projected(Some(items), &table.columns, from.qualifier(&table.name))?;
        let key = selection.map(|selection| self.key(number, from, selection)).transpose()?;
        let limit = limit.map(|limit| self.limit(limit)).transpose()?.flatten();
        let shown =
            columns.iter().map(|(column, name)| Described { name: name.clone(), ..described(&table.columns[*column]) });
        let shown = shown.collect();
        let columns = columns.into_iter().map(|(column, _)| column).collect();
        Ok((Statement::Read(Read { table: number, columns, key, limit }), Some(shown)))
    }

    /// Returns the values of a key from `key = value AND ...`.
    fn key(&mut self, table: usize, from: &Relation, selection: &Expr) -> PgResult<Vec<Argument>> {
        let catalog = self.catalog;
        let table = &catalog.tables[table];
        let names = listed(table.key.iter().map(|&column| &*table.columns[column].name));
        let other = || {
            let hint = format!("the key of table '{}' is {names}", table.name);
            PgError::not_supported("a WHERE that is not an equality for each column of the key").hint(hint)
        };
        let mut equalities = Vec::new();
        conjuncts(selection, &mut equalities).ok_or_else(other)?;
        let mut values: Vec<Option<Argument>> = table.key.iter().map(|_| None).collect();
        for (left, right) in equalities {
            let qualifier = from.qualifier(&table.name);
            let (column, value) = match (column_name(left, qualifier), column_name(right, qualifier)) {
                (Some(column), None) => (column, right),
                (None, Some(column)) => (column, left),
                _ => return Err(other()),
            };
            let field = table.columns.iter().position(|field| column.is(&field.name));
            let field = field.ok_or_else(|| no_column(&column, &table.columns, &table.name))?;
            let place = table.key.iter().position(|&key| key == field).ok_or_else(other)?;
            let ty = types::of_field(&table.columns[field].ty);
            if matches!(ty, PgType::Float8) {
                return Err(PgError::not_supported("a key of floats in WHERE").hint("read the whole table"));
            }
            let name = &table.columns[field].name;
            let argument = self.argument(value, ty).map_err(|error| error.column(name))?;
            self.name(&argument, name);
            if values[place].replace(argument).is_some() {
                return Err(other());
            }
        }
        values.into_iter().collect::<Option<_>>().ok_or_else(other)
    }

    fn limit(&mut self, limit: &LimitClause) -> PgResult<Option<Argument>> {
        let LimitClause::LimitOffset { limit, offset: None, limit_by } = limit else {
            return Err(PgError::not_supported("OFFSET"));
        };
        none_of(&[(!limit_by.is_empty(), "LIMIT BY")])?;
        limit.as_ref().map(|limit| self.argument(limit, PgType::Int8)).transpose()
    }
}

/// Returns the first word of a statement.
fn first_word(statement: &ast::Statement) -> String {
    statement.to_string().split_whitespace().next().unwrap_or_default().to_owned()
}

/// Returns the signature of a procedure: `deposit(account, amount)`.
fn signature(procedure: &Procedure) -> String {
    let fields = procedure.fields.iter().map(|field| format!("{} {}", field.name, types::of_field(&field.ty).name()));
    format!("{}({})", procedure.name, fields.collect::<Vec<_>>().join(", "))
}

/// Returns the error that a procedure has no parameter of this name, or not that many.
fn no_argument(procedure: &Procedure, name: Option<&Name>, count: usize) -> PgError {
    let error = match name {
        Some(name) => PgError::new(code::NO_FUNCTION, format!("{} has no argument '{name}'", signature(procedure))),
        None => PgError::new(code::NO_FUNCTION, format!("{} is given {count} arguments", signature(procedure))),
    };
    name.map_or(error.clone(), |name| error.column(name.to_string()))
}

/// Refuses the statement if it has any of these clauses; each comes with its name.
fn none_of(refusals: &[(bool, &str)]) -> PgResult<()> {
    match refusals.iter().find(|(is_there, _)| *is_there) {
        Some((_, what)) => Err(PgError::not_supported(what)),
        None => Ok(()),
    }
}

/// Refuses what a `SELECT` has beside columns, one table and `WHERE`.
fn check_clauses(select: &Select) -> PgResult<()> {
    let Select {
        select_token: _,
        optimizer_hints,
        distinct,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection: _,
        exclude,
        into,
        from: _,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by,
        cluster_by,
        distribute_by,
        sort_by,
        having,
        named_window,
        qualify,
        window_before_qualify: _,
        value_table_mode,
        flavor,
    } = select;
    let groups = !matches!(group_by, GroupByExpr::Expressions(by, with) if by.is_empty() && with.is_empty());
    let foreign = !optimizer_hints.is_empty()
        || select_modifiers.is_some()
        || top.is_some()
        || exclude.is_some()
        || !lateral_views.is_empty()
        || prewhere.is_some()
        || !connect_by.is_empty()
        || !cluster_by.is_empty()
        || !distribute_by.is_empty()
        || !sort_by.is_empty()
        || qualify.is_some()
        || value_table_mode.is_some()
        || !matches!(flavor, SelectFlavor::Standard);
    none_of(&[
        (distinct.is_some(), "DISTINCT"),
        (into.is_some(), "INTO"),
        (groups, "GROUP BY"),
        (having.is_some(), "HAVING"),
        (!named_window.is_empty(), "WINDOW"),
        (foreign, "clauses of other systems"),
    ])
}
