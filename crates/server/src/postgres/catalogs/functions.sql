-- Functions and views over the rows, after those of `tables.sql` and of the application.

-- Names of types, by number and the other way.
create macro type_name(n) as
    map {16: 'boolean', 17: 'bytea', 18: '"char"', 19: 'name', 20: 'bigint', 21: 'smallint', 22: 'int2vector',
    23: 'integer', 24: 'regproc', 25: 'text', 26: 'oid', 30: 'oidvector', 114: 'json', 700: 'real',
    701: 'double precision', 705: 'unknown', 1042: 'character', 1043: 'character varying', 1082: 'date',
    1083: 'time without time zone', 1114: 'timestamp without time zone', 1184: 'timestamp with time zone',
    1186: 'interval', 1700: 'numeric', 2205: 'regclass', 2206: 'regtype', 4089: 'regnamespace', 2950: 'uuid',
    3802: 'jsonb', 2249: 'record', 2275: 'cstring', 2276: '"any"', 2277: 'anyarray', 2278: 'void',
    2283: 'anyelement', 1000: 'boolean[]', 1001: 'bytea[]', 1002: '"char"[]', 1003: 'name[]', 1016: 'bigint[]',
    1005: 'smallint[]', 1006: 'int2vector[]', 1007: 'integer[]', 1008: 'regproc[]', 1009: 'text[]',
    1028: 'oid[]', 1013: 'oidvector[]', 199: 'json[]', 1021: 'real[]', 1022: 'double precision[]',
    1014: 'character[]', 1015: 'character varying[]', 1182: 'date[]', 1183: 'time without time zone[]',
    1115: 'timestamp without time zone[]', 1185: 'timestamp with time zone[]', 1187: 'interval[]',
    1231: 'numeric[]', 2210: 'regclass[]', 2211: 'regtype[]', 4090: 'regnamespace[]', 2951: 'uuid[]',
    3807: 'jsonb[]', 1263: 'cstring[]'}[n::bigint];
create macro type_number(t) as
    map {'boolean': 16, 'bytea': 17, 'char': 18, 'name': 19, 'bigint': 20, 'smallint': 21, 'int2vector': 22,
    'integer': 23, 'regproc': 24, 'text': 25, 'oid': 26, 'oidvector': 30, 'json': 114, 'real': 700,
    'double precision': 701, 'unknown': 705, 'character': 1042, 'character varying': 1043, 'date': 1082,
    'time without time zone': 1083, 'timestamp without time zone': 1114, 'timestamp with time zone': 1184,
    'interval': 1186, 'numeric': 1700, 'regclass': 2205, 'regtype': 2206, 'regnamespace': 4089, 'uuid': 2950,
    'jsonb': 3802, 'record': 2249, 'cstring': 2275, 'any': 2276, 'anyarray': 2277, 'void': 2278,
    'anyelement': 2283, 'boolean[]': 1000, 'bytea[]': 1001, 'char"[]': 1002, 'name[]': 1003, 'bigint[]': 1016,
    'smallint[]': 1005, 'int2vector[]': 1006, 'integer[]': 1007, 'regproc[]': 1008, 'text[]': 1009,
    'oid[]': 1028, 'oidvector[]': 1013, 'json[]': 199, 'real[]': 1021, 'double precision[]': 1022,
    'character[]': 1014, 'character varying[]': 1015, 'date[]': 1182, 'time without time zone[]': 1183,
    'timestamp without time zone[]': 1115, 'timestamp with time zone[]': 1185, 'interval[]': 1187,
    'numeric[]': 1231, 'regclass[]': 2210, 'regtype[]': 2211, 'regnamespace[]': 4090, 'uuid[]': 2951,
    'jsonb[]': 3807, 'cstring[]': 1263, 'int8': 20, 'int4': 23, 'int': 23, 'int2': 21, 'float8': 701,
    'float4': 700, 'float': 701, 'bool': 16, 'decimal': 1700, 'varchar': 1043, 'bpchar': 1042,
    'timestamptz': 1184, 'timestamp': 1114, 'time': 1083, 'string': 25, '_bool': 1000, '_bytea': 1001,
    '_char': 1002, '_name': 1003, '_int8': 1016, '_int2': 1005, '_int2vector': 1006, '_int4': 1007,
    '_regproc': 1008, '_text': 1009, '_oid': 1028, '_oidvector': 1013, '_json': 199, '_float4': 1021,
    '_float8': 1022, '_bpchar': 1014, '_varchar': 1015, '_date': 1182, '_time': 1183, '_timestamp': 1115,
    '_timestamptz': 1185, '_interval': 1187, '_numeric': 1231, '_regclass': 2210, '_regtype': 2211,
    '_regnamespace': 4090, '_uuid': 2951, '_jsonb': 3807, '_cstring': 1263}[t::varchar];
create macro format_type(n, m) as case
    when n is null then null
    when n = 0 then '-'
    when n = 1700 and m >= 4 then 'numeric(' || (((m - 4) >> 16) & 65535) || ',' || ((m - 4) & 65535) || ')'
    else coalesce(tidemill_pg.type_name(n), tidemill_pg.class_name(n::bigint - 1), '???') end;

-- The numbers of tables: those of the application, and those of the catalogs, of which there are no rows.
create macro class_number(t) as coalesce(tidemill_pg.table_number(t),
    map {'pg_default_acl': 826, 'pg_tablespace': 1213, 'pg_shdepend': 1214, 'pg_type': 1247, 'pg_attribute':
    1249, 'pg_proc': 1255, 'pg_class': 1259, 'pg_auth_members': 1261, 'pg_database': 1262,
    'pg_foreign_server': 1417, 'pg_sequence': 2224, 'pg_foreign_data_wrapper': 2328, 'pg_shdescription': 2396,
    'pg_aggregate': 2600, 'pg_am': 2601, 'pg_attrdef': 2604, 'pg_cast': 2605, 'pg_constraint': 2606,
    'pg_conversion': 2607, 'pg_depend': 2608, 'pg_description': 2609, 'pg_index': 2610, 'pg_inherits': 2611,
    'pg_language': 2612, 'pg_namespace': 2615, 'pg_opclass': 2616, 'pg_operator': 2617, 'pg_rewrite': 2618,
    'pg_trigger': 2620, 'pg_opfamily': 2753, 'pg_db_role_setting': 2964, 'pg_extension': 3079,
    'pg_foreign_table': 3118, 'pg_policy': 3256, 'pg_partitioned_table': 3350, 'pg_statistic_ext': 3381,
    'pg_collation': 3456, 'pg_event_trigger': 3466, 'pg_enum': 3501, 'pg_range': 3541, 'pg_seclabel': 3596,
    'pg_largeobject_metadata': 2995, 'pg_ts_dict': 3600, 'pg_ts_parser': 3601, 'pg_ts_template': 3764,
    'pg_subscription': 6100, 'pg_ts_config': 3602, 'pg_publication': 6104, 'pg_publication_rel': 6106, 'pg_publication_namespace':
    6237}[t::varchar]);

-- Names as numbers, and numbers as names: what a cast to regclass and the like does.
create macro plain_name(t) as
    replace(regexp_replace(lower(trim(t::varchar)), '^"?(pg_catalog|public|information_schema)"?\.', ''), '"', '');
create macro to_regclass(t) as coalesce(tidemill_pg.class_number(tidemill_pg.plain_name(t)), try_cast(t as bigint));
create macro to_regtype(t) as coalesce(tidemill_pg.type_number(tidemill_pg.plain_name(t)), tidemill_pg.class_number(tidemill_pg.plain_name(t)) + 1, try_cast(t as bigint));
create macro to_regproc(t) as coalesce(tidemill_pg.function_number(tidemill_pg.plain_name(t)), try_cast(t as bigint));
create macro to_regprocedure(t) as tidemill_pg.to_regproc(regexp_replace(t, '\(.*', ''));
create macro to_regnamespace(t) as map {'pg_catalog': 11, 'public': 2200, 'information_schema': 13000}[lower(t)];
create macro to_regrole(t) as map {'tidemill': 10}[lower(t)];
create macro regclass_of(t) as
    case when t is null then null else coalesce(tidemill_pg.to_regclass(t), error('relation "' || t || '" does not exist')) end::uinteger;
create macro regtype_of(t) as
    case when t is null then null else coalesce(tidemill_pg.to_regtype(t), error('type "' || t || '" does not exist')) end::uinteger;
create macro regproc_of(t) as
    case when t is null then null else coalesce(tidemill_pg.to_regproc(t), error('function "' || t || '" does not exist')) end::uinteger;
create macro regprocedure_of(t) as
    case when t is null then null else coalesce(tidemill_pg.to_regprocedure(t), error('function "' || t || '" does not exist')) end::uinteger;
create macro regnamespace_of(t) as
    case when t is null then null else coalesce(tidemill_pg.to_regnamespace(t), error('schema "' || t || '" does not exist')) end::uinteger;
create macro regrole_of(t) as
    case when t is null then null else coalesce(tidemill_pg.to_regrole(t), error('role "' || t || '" does not exist')) end::uinteger;
create macro regclass_text(n) as case when n = 0 then '-' else coalesce(tidemill_pg.class_name(n), n::varchar) end;
create macro regtype_text(n) as case when n = 0 then '-' else coalesce(tidemill_pg.type_name(n), tidemill_pg.class_name(n::bigint - 1), n::varchar) end;
create macro regproc_text(n) as case when n = 0 then '-' else coalesce(tidemill_pg.function_name(n), n::varchar) end;
create macro regprocedure_text(n) as tidemill_pg.regproc_text(n);
create macro regnamespace_text(n) as
    coalesce(map {11: 'pg_catalog', 2200: 'public', 13000: 'information_schema'}[n::integer], n::varchar);
create macro regrole_text(n) as coalesce(map {10: 'tidemill'}[n::integer], n::varchar);

create macro pg_get_userbyid(n) as tidemill_pg.regrole_text(n);
create macro pg_table_is_visible(n) as true;
create macro pg_type_is_visible(n) as true;
create macro pg_function_is_visible(n) as true;
create macro pg_collation_is_visible(n) as true;
create macro pg_operator_is_visible(n) as true;
create macro pg_opclass_is_visible(n) as true;
create macro pg_opfamily_is_visible(n) as true;
create macro pg_conversion_is_visible(n) as true;
create macro pg_ts_config_is_visible(n) as true;
create macro pg_ts_dict_is_visible(n) as true;
create macro pg_ts_parser_is_visible(n) as true;
create macro pg_ts_template_is_visible(n) as true;
create macro getdatabaseencoding() as 'UTF8';
create macro pg_char_to_encoding(t) as case when upper(t) = 'UTF8' then 6 else -1 end;
create macro pg_statistics_obj_is_visible(n) as true;
create macro pg_is_other_temp_schema(n) as false;
create macro pg_my_temp_schema() as 0;
create macro pg_relation_is_publishable(n) as false;
create macro pg_get_expr(a, b) as a, (a, b, c) as a;
create macro pg_get_constraintdef(n) as tidemill_pg.constraint_text(n), (n, b) as tidemill_pg.constraint_text(n);
create macro pg_get_indexdef(n) as tidemill_pg.index_text(n),
    (n, k, b) as case when k = 0 then tidemill_pg.index_text(n) else tidemill_pg.index_columns(n)[k] end;
create macro pg_get_function_result(n) as tidemill_pg.function_result(n);
create macro pg_get_function_arguments(n) as tidemill_pg.function_arguments(n);
create macro pg_get_function_identity_arguments(n) as tidemill_pg.function_arguments(n);
create macro quote_ident(t) as
    case when regexp_full_match(t, '[a-z_][a-z0-9_$]*') then t else '"' || replace(t, '"', '""') || '"' end;
create macro pg_get_functiondef(n) as 'CREATE OR REPLACE FUNCTION public.' || tidemill_pg.quote_ident(tidemill_pg.function_name(n))
    || '(' || tidemill_pg.function_arguments(n) || e')\n RETURNS ' || tidemill_pg.function_result(n)
    || e'\n LANGUAGE tidemill\nAS $function$' || tidemill_pg.function_name(n) || e'$function$\n';
create macro pg_get_function_sqlbody(n) as null::varchar;
create macro pg_get_viewdef(n) as null::varchar, (n, b) as null::varchar;
create macro pg_get_triggerdef(n) as null::varchar, (n, b) as null::varchar;
create macro pg_get_ruledef(n) as null::varchar, (n, b) as null::varchar;
create macro pg_get_partkeydef(n) as null::varchar;
create macro pg_get_statisticsobjdef_columns(n) as null::varchar;
create macro pg_get_serial_sequence(a, b) as null::varchar;
create macro obj_description(n) as null::varchar, (n, c) as null::varchar;
create macro shobj_description(n, c) as null::varchar;
create macro col_description(n, c) as null::varchar;
create macro pg_encoding_to_char(n) as 'UTF8';
create macro pg_stat_get_numscans(n) as null::bigint;
create macro pg_relation_size(n) as null::bigint, (n, k) as null::bigint;
create macro pg_table_size(n) as null::bigint;
create macro pg_indexes_size(n) as null::bigint;
create macro pg_total_relation_size(n) as null::bigint;
create macro pg_database_size(n) as null::bigint;
create macro pg_tablespace_size(n) as null::bigint;
create macro pg_size_pretty(n) as n::varchar || ' bytes';
create macro pg_tablespace_location(n) as '';
create macro has_schema_privilege(a, b) as true, (a, b, c) as true;
create macro has_table_privilege(a, b) as true, (a, b, c) as true;
create macro has_column_privilege(a, b, c) as true, (a, b, c, d) as true;
create macro has_any_column_privilege(a, b) as true, (a, b, c) as true;
create macro has_function_privilege(a, b) as true, (a, b, c) as true;
create macro has_database_privilege(a, b) as true, (a, b, c) as true;
create macro has_type_privilege(a, b) as true, (a, b, c) as true;
create macro pg_has_role(a, b) as true, (a, b, c) as true;
create macro aclexplode(a) as unnest(
    []::struct(grantor uinteger, grantee uinteger, privilege_type varchar, is_grantable boolean)[]);
create macro array_upper(a, n) as len(a);
create macro array_lower(a, n) as case when len(a) > 0 then 1 end;
create macro _pg_expandarray(a) as unnest(list_transform(a, lambda v, i: {'x': v, 'n': i}));
create macro pg_get_keywords() as table select null::varchar as word, null::varchar as catcode, null::varchar as catdesc
    where false;
create macro current_setting(t) as
    coalesce(tidemill_pg.setting(lower(t)), error('unrecognized configuration parameter "' || t || '"')),
    (t, is_optional) as tidemill_pg.setting(lower(t));
create macro set_config(t, v, is_local) as case when tidemill_pg.setting(lower(t)) = v then v
    else error('set_config changes no setting here; use SET ' || t) end;

create view pg_tables as select 'public' as schemaname, relname as tablename, 'tidemill' as tableowner,
    null::varchar as tablespace, true as hasindexes, false as hasrules, false as hastriggers, false as rowsecurity
    from tidemill_pg.pg_class where relkind = 'r';
create view pg_indexes as select 'public' as schemaname, t.relname as tablename, c.relname as indexname,
    null::varchar as tablespace, tidemill_pg.pg_get_indexdef(c.oid) as indexdef
    from tidemill_pg.pg_index i join tidemill_pg.pg_class c on c.oid = i.indexrelid
    join tidemill_pg.pg_class t on t.oid = i.indrelid;
create view pg_user as select rolname as usename, oid as usesysid, rolcreatedb as usecreatedb, rolsuper as usesuper,
    rolreplication as userepl, rolbypassrls as usebypassrls, '********' as passwd, null::timestamptz as valuntil,
    null::varchar[] as useconfig from tidemill_pg.pg_roles;

-- The schema of information.
set schema = 'tidemill_info';
create view schemata as select tidemill_pg.database_name() as catalog_name, nspname as schema_name, 'tidemill' as schema_owner
    from tidemill_pg.pg_namespace;
create view tables as select tidemill_pg.database_name() as table_catalog, 'public' as table_schema, relname as table_name,
    'BASE TABLE' as table_type, null::varchar as self_referencing_column_name, null::varchar as reference_generation,
    null::varchar as user_defined_type_catalog, null::varchar as user_defined_type_schema,
    null::varchar as user_defined_type_name, 'NO' as is_insertable_into, 'NO' as is_typed, null::varchar as commit_action
    from tidemill_pg.pg_class where relkind = 'r';
create view columns as select tidemill_pg.database_name() as table_catalog, 'public' as table_schema, c.relname as table_name,
    a.attname as column_name, a.attnum as ordinal_position, null::varchar as column_default,
    case when a.attnotnull then 'NO' else 'YES' end as is_nullable, tidemill_pg.format_type(a.atttypid, null) as data_type,
    null::bigint as character_maximum_length, null::bigint as character_octet_length,
    case a.atttypid when 20 then 64 when 701 then 53 when 1700 then ((a.atttypmod - 4) >> 16) & 65535 end
        as numeric_precision,
    case a.atttypid when 20 then 2 when 701 then 2 when 1700 then 10 end as numeric_precision_radix,
    case a.atttypid when 20 then 0 when 1700 then (a.atttypmod - 4) & 65535 end as numeric_scale,
    case a.atttypid when 1184 then 6 end as datetime_precision, null::varchar as interval_type,
    null::varchar as character_set_name, null::varchar as collation_name, null::varchar as domain_name,
    tidemill_pg.database_name() as udt_catalog, 'pg_catalog' as udt_schema, t.typname as udt_name, a.attnum::varchar as dtd_identifier,
    'NO' as is_identity, 'NEVER' as is_generated, null::varchar as generation_expression, 'NO' as is_updatable
    from tidemill_pg.pg_attribute a join tidemill_pg.pg_class c on c.oid = a.attrelid and c.relkind = 'r'
    join tidemill_pg.pg_type t on t.oid = a.atttypid;
create view table_constraints as select tidemill_pg.database_name() as constraint_catalog, 'public' as constraint_schema,
    k.conname as constraint_name, tidemill_pg.database_name() as table_catalog, 'public' as table_schema, c.relname as table_name,
    'PRIMARY KEY' as constraint_type, 'NO' as is_deferrable, 'NO' as initially_deferred, 'YES' as enforced
    from tidemill_pg.pg_constraint k join tidemill_pg.pg_class c on c.oid = k.conrelid;
create view key_column_usage as select tidemill_pg.database_name() as constraint_catalog, 'public' as constraint_schema,
    k.conname as constraint_name, tidemill_pg.database_name() as table_catalog, 'public' as table_schema, c.relname as table_name,
    a.attname as column_name, list_position(k.conkey, a.attnum) as ordinal_position,
    null::bigint as position_in_unique_constraint
    from tidemill_pg.pg_constraint k join tidemill_pg.pg_class c on c.oid = k.conrelid
    join tidemill_pg.pg_attribute a on a.attrelid = c.oid and list_contains(k.conkey, a.attnum);
create view referential_constraints as select tidemill_pg.database_name() as constraint_catalog, 'public' as constraint_schema,
    null::varchar as constraint_name, null::varchar as unique_constraint_catalog,
    null::varchar as unique_constraint_schema, null::varchar as unique_constraint_name, 'NONE' as match_option,
    'NO ACTION' as update_rule, 'NO ACTION' as delete_rule where false;
create view constraint_column_usage as select table_catalog, table_schema, table_name, column_name, constraint_catalog,
    constraint_schema, constraint_name from tidemill_info.key_column_usage where false;
create view views as select tidemill_pg.database_name() as table_catalog, 'public' as table_schema, null::varchar as table_name,
    null::varchar as view_definition, 'NONE' as check_option, 'NO' as is_updatable where false;
create view sequences as select tidemill_pg.database_name() as sequence_catalog, 'public' as sequence_schema,
    null::varchar as sequence_name where false;
create view triggers as select tidemill_pg.database_name() as trigger_catalog, 'public' as trigger_schema, null::varchar as trigger_name
    where false;
create view routines as select tidemill_pg.database_name() as specific_catalog, 'public' as specific_schema,
    proname || '_' || oid as specific_name, tidemill_pg.database_name() as routine_catalog, 'public' as routine_schema,
    proname as routine_name, 'FUNCTION' as routine_type, tidemill_pg.format_type(prorettype, null) as data_type,
    'EXTERNAL' as routine_body, null::varchar as routine_definition, 'TIDEMILL' as external_language
    from tidemill_pg.pg_proc;
create view table_privileges as select 'tidemill' as grantor, 'tidemill' as grantee, table_catalog, table_schema,
    table_name, 'SELECT' as privilege_type, 'NO' as is_grantable, 'NO' as with_hierarchy from tidemill_info.tables;
create view routine_privileges as select 'tidemill' as grantor, 'tidemill' as grantee, specific_catalog,
    specific_schema, specific_name, routine_catalog, routine_schema, routine_name, 'EXECUTE' as privilege_type,
    'NO' as is_grantable from tidemill_info.routines;
set schema = 'main';
