-- The catalogs of PostgreSQL 15 for DuckDB: tables with its columns, the types that are spoken, and functions. The rows
-- of an application follow (`script.rs`).
--
-- Numbers of objects are `bigint`, names are `varchar`, `oidvector` is text as PostgreSQL writes it, and arrays are lists.
-- The bodies of macros name no columns: these would be taken for those of the query around.
create schema tidemill_pg;
create schema tidemill_info;
set schema = 'tidemill_pg';

create table pg_class (oid uinteger default 0, relname varchar, relnamespace uinteger default 0,
    reltype uinteger default 0, reloftype uinteger default 0, relowner uinteger default 0, relam uinteger default 0,
    relfilenode uinteger default 0, reltablespace uinteger default 0, relpages bigint default 0,
    reltuples double default 0, relallvisible bigint default 0, reltoastrelid uinteger default 0,
    relhasindex boolean default false, relisshared boolean default false, relpersistence varchar, relkind varchar,
    relnatts bigint default 0, relchecks bigint default 0, relhasrules boolean default false,
    relhastriggers boolean default false, relhassubclass boolean default false, relrowsecurity boolean default false,
    relforcerowsecurity boolean default false, relispopulated boolean default false, relreplident varchar,
    relispartition boolean default false, relrewrite uinteger default 0, relfrozenxid bigint default 0,
    relminmxid bigint default 0, relacl varchar, reloptions varchar[], relpartbound varchar);
create table pg_namespace (oid uinteger default 0, nspname varchar, nspowner uinteger default 0, nspacl varchar);
create table pg_attribute (attrelid uinteger default 0, attname varchar, atttypid uinteger default 0,
    attstattarget bigint default 0, attlen bigint default 0, attnum bigint default 0, attndims bigint default 0,
    attcacheoff bigint default 0, atttypmod bigint default 0, attbyval boolean default false, attalign varchar,
    attstorage varchar, attcompression varchar, attnotnull boolean default false, atthasdef boolean default false,
    atthasmissing boolean default false, attidentity varchar, attgenerated varchar,
    attisdropped boolean default false, attislocal boolean default false, attinhcount bigint default 0,
    attcollation uinteger default 0, attacl varchar, attoptions varchar[], attfdwoptions varchar[],
    attmissingval varchar);
create table pg_attrdef (oid uinteger default 0, adrelid uinteger default 0, adnum bigint default 0, adbin varchar);
create table pg_type (oid uinteger default 0, typname varchar, typnamespace uinteger default 11,
    typowner uinteger default 10, typlen bigint default 0, typbyval boolean default false, typtype varchar,
    typcategory varchar, typispreferred boolean default false, typisdefined boolean default true, typdelim varchar,
    typrelid uinteger default 0, typsubscript uinteger default 0, typelem uinteger default 0,
    typarray uinteger default 0, typinput uinteger default 0, typoutput uinteger default 0,
    typreceive uinteger default 0, typsend uinteger default 0, typmodin uinteger default 0,
    typmodout uinteger default 0, typanalyze uinteger default 0, typalign varchar, typstorage varchar,
    typnotnull boolean default false, typbasetype uinteger default 0, typtypmod bigint default -1,
    typndims bigint default 0, typcollation uinteger default 0, typdefaultbin varchar, typdefault varchar,
    typacl varchar);
create table pg_proc (oid uinteger default 0, proname varchar, pronamespace uinteger default 0,
    proowner uinteger default 0, prolang uinteger default 0, procost double default 0, prorows double default 0,
    provariadic uinteger default 0, prosupport uinteger default 0, prokind varchar, prosecdef boolean default false,
    proleakproof boolean default false, proisstrict boolean default false, proretset boolean default false,
    provolatile varchar, proparallel varchar, pronargs bigint default 0, pronargdefaults bigint default 0,
    prorettype uinteger default 0, proargtypes varchar, proallargtypes uinteger[], proargmodes varchar[],
    proargnames varchar[], proargdefaults varchar, protrftypes uinteger[], prosrc varchar, probin varchar,
    prosqlbody varchar, proconfig varchar[], proacl varchar);
create table pg_index (indexrelid uinteger default 0, indrelid uinteger default 0, indnatts bigint default 0,
    indnkeyatts bigint default 0, indisunique boolean default false, indnullsnotdistinct boolean default false,
    indisprimary boolean default false, indisexclusion boolean default false, indimmediate boolean default false,
    indisclustered boolean default false, indisvalid boolean default false, indcheckxmin boolean default false,
    indisready boolean default false, indislive boolean default false, indisreplident boolean default false,
    indkey bigint[], indcollation uinteger[], indclass uinteger[], indoption bigint[], indexprs varchar,
    indpred varchar);
create table pg_constraint (oid uinteger default 0, conname varchar, connamespace uinteger default 0, contype varchar,
    condeferrable boolean default false, condeferred boolean default false, convalidated boolean default false,
    conrelid uinteger default 0, contypid uinteger default 0, conindid uinteger default 0,
    conparentid uinteger default 0, confrelid uinteger default 0, confupdtype varchar, confdeltype varchar,
    confmatchtype varchar, conislocal boolean default false, coninhcount bigint default 0,
    connoinherit boolean default false, conkey bigint[], confkey bigint[], conpfeqop uinteger[], conppeqop uinteger[],
    conffeqop uinteger[], confdelsetcols bigint[], conexclop uinteger[], conbin varchar,
    tableoid uinteger default 0);
create table pg_am (oid uinteger default 0, amname varchar, amhandler uinteger default 0, amtype varchar);
create table pg_description (objoid uinteger default 0, classoid uinteger default 0, objsubid bigint default 0,
    description varchar);
create table pg_shdescription (objoid uinteger default 0, classoid uinteger default 0, description varchar);
create table pg_database (oid uinteger default 0, datname varchar, datdba uinteger default 0,
    encoding bigint default 0, datlocprovider varchar, datistemplate boolean default false,
    datallowconn boolean default false, datconnlimit bigint default 0, datfrozenxid bigint default 0,
    datminmxid bigint default 0, dattablespace uinteger default 0, datcollate varchar, datctype varchar,
    daticulocale varchar, datcollversion varchar, datacl varchar);
create table pg_roles (rolname varchar, rolsuper boolean default false, rolinherit boolean default false,
    rolcreaterole boolean default false, rolcreatedb boolean default false, rolcanlogin boolean default false,
    rolreplication boolean default false, rolconnlimit bigint default 0, rolpassword varchar,
    rolvaliduntil timestamptz, rolbypassrls boolean default false, rolconfig varchar[], oid uinteger default 0);
create table pg_collation (oid uinteger default 0, collname varchar, collnamespace uinteger default 0,
    collowner uinteger default 0, collprovider varchar, collisdeterministic boolean default false,
    collencoding bigint default 0, collcollate varchar, collctype varchar, colliculocale varchar,
    collversion varchar);
create table pg_policy (oid uinteger default 0, polname varchar, polrelid uinteger default 0, polcmd varchar,
    polpermissive boolean default false, polroles uinteger[], polqual varchar, polwithcheck varchar);
create table pg_policies (schemaname varchar, tablename varchar, policyname varchar, permissive varchar,
    roles varchar[], cmd varchar, qual varchar, with_check varchar);
create table pg_inherits (inhrelid uinteger default 0, inhparent uinteger default 0, inhseqno bigint default 0,
    inhdetachpending boolean default false);
create table pg_statistic_ext (oid uinteger default 0, stxrelid uinteger default 0, stxname varchar,
    stxnamespace uinteger default 0, stxowner uinteger default 0, stxstattarget bigint default 0, stxkeys bigint[],
    stxkind varchar[], stxexprs varchar);
create table pg_publication (oid uinteger default 0, pubname varchar, pubowner uinteger default 0,
    puballtables boolean default false, pubinsert boolean default false, pubupdate boolean default false,
    pubdelete boolean default false, pubtruncate boolean default false, pubviaroot boolean default false);
create table pg_publication_rel (oid uinteger default 0, prpubid uinteger default 0, prrelid uinteger default 0,
    prqual varchar, prattrs bigint[]);
create table pg_publication_namespace (oid uinteger default 0, pnpubid uinteger default 0,
    pnnspid uinteger default 0);
create table pg_opclass (oid uinteger default 0, opcmethod uinteger default 0, opcname varchar,
    opcnamespace uinteger default 0, opcowner uinteger default 0, opcfamily uinteger default 0,
    opcintype uinteger default 0, opcdefault boolean default false, opckeytype uinteger default 0,
    tableoid uinteger default 0);
create table pg_opfamily (oid uinteger default 0, opfmethod uinteger default 0, opfname varchar,
    opfnamespace uinteger default 0, opfowner uinteger default 0,
    tableoid uinteger default 0);
create table pg_auth_members (roleid uinteger default 0, member uinteger default 0, grantor uinteger default 0,
    admin_option boolean default false);
create table pg_settings (name varchar, setting varchar, unit varchar, category varchar, short_desc varchar,
    extra_desc varchar, context varchar, vartype varchar, source varchar, min_val varchar, max_val varchar,
    enumvals varchar[], boot_val varchar, reset_val varchar, sourcefile varchar, sourceline bigint default 0,
    pending_restart boolean default false);
create table pg_tablespace (oid uinteger default 0, spcname varchar, spcowner uinteger default 0, spcacl varchar,
    spcoptions varchar[]);
create table pg_stat_activity (datid uinteger default 0, datname varchar, pid bigint default 0,
    leader_pid bigint default 0, usesysid uinteger default 0, usename varchar, application_name varchar,
    client_addr varchar, client_hostname varchar, client_port bigint default 0, backend_start timestamptz,
    xact_start timestamptz, query_start timestamptz, state_change timestamptz, wait_event_type varchar,
    wait_event varchar, state varchar, backend_xid bigint default 0, backend_xmin bigint default 0,
    query_id bigint default 0, query varchar, backend_type varchar);
create table pg_extension (oid uinteger default 0, extname varchar, extowner uinteger default 0,
    extnamespace uinteger default 0, extrelocatable boolean default false, extversion varchar, extconfig uinteger[],
    extcondition varchar[]);
create table pg_foreign_table (ftrelid uinteger default 0, ftserver uinteger default 0, ftoptions varchar[]);
create table pg_foreign_server (oid uinteger default 0, srvname varchar, srvowner uinteger default 0,
    srvfdw uinteger default 0, srvtype varchar, srvversion varchar, srvacl varchar, srvoptions varchar[]);
create table pg_foreign_data_wrapper (oid uinteger default 0, fdwname varchar, fdwowner uinteger default 0,
    fdwhandler uinteger default 0, fdwvalidator uinteger default 0, fdwacl varchar, fdwoptions varchar[]);
create table pg_enum (oid uinteger default 0, enumtypid uinteger default 0, enumsortorder double default 0,
    enumlabel varchar);
create table pg_range (rngtypid uinteger default 0, rngsubtype uinteger default 0, rngmultitypid uinteger default 0,
    rngcollation uinteger default 0, rngsubopc uinteger default 0, rngcanonical uinteger default 0,
    rngsubdiff uinteger default 0);
create table pg_sequence (seqrelid uinteger default 0, seqtypid uinteger default 0, seqstart bigint default 0,
    seqincrement bigint default 0, seqmax bigint default 0, seqmin bigint default 0, seqcache bigint default 0,
    seqcycle boolean default false);
create table pg_trigger (oid uinteger default 0, tgrelid uinteger default 0, tgparentid uinteger default 0,
    tgname varchar, tgfoid uinteger default 0, tgtype bigint default 0, tgenabled varchar,
    tgisinternal boolean default false, tgconstrrelid uinteger default 0, tgconstrindid uinteger default 0,
    tgconstraint uinteger default 0, tgdeferrable boolean default false, tginitdeferred boolean default false,
    tgnargs bigint default 0, tgattr bigint[], tgargs blob, tgqual varchar, tgoldtable varchar, tgnewtable varchar,
    tableoid uinteger default 0);
create table pg_rewrite (oid uinteger default 0, rulename varchar, ev_class uinteger default 0, ev_type varchar,
    ev_enabled varchar, is_instead boolean default false, ev_qual varchar, ev_action varchar,
    tableoid uinteger default 0);
create table pg_operator (oid uinteger default 0, oprname varchar, oprnamespace uinteger default 0,
    oprowner uinteger default 0, oprkind varchar, oprcanmerge boolean default false, oprcanhash boolean default false,
    oprleft uinteger default 0, oprright uinteger default 0, oprresult uinteger default 0, oprcom uinteger default 0,
    oprnegate uinteger default 0, oprcode uinteger default 0, oprrest uinteger default 0, oprjoin uinteger default 0);
create table pg_language (oid uinteger default 0, lanname varchar, lanowner uinteger default 0,
    lanispl boolean default false, lanpltrusted boolean default false, lanplcallfoid uinteger default 0,
    laninline uinteger default 0, lanvalidator uinteger default 0, lanacl varchar, tableoid uinteger default 0);
create table pg_depend (classid uinteger default 0, objid uinteger default 0, objsubid bigint default 0,
    refclassid uinteger default 0, refobjid uinteger default 0, refobjsubid bigint default 0, deptype varchar);
create table pg_cast (oid uinteger default 0, castsource uinteger default 0, casttarget uinteger default 0,
    castfunc uinteger default 0, castcontext varchar, castmethod varchar);
create table pg_conversion (oid uinteger default 0, conname varchar, connamespace uinteger default 0,
    conowner uinteger default 0, conforencoding bigint default 0, contoencoding bigint default 0,
    conproc uinteger default 0, condefault boolean default false);
create table pg_aggregate (aggfnoid uinteger default 0, aggkind varchar, aggnumdirectargs bigint default 0,
    aggtransfn uinteger default 0, aggfinalfn uinteger default 0, aggcombinefn uinteger default 0,
    aggserialfn uinteger default 0, aggdeserialfn uinteger default 0, aggmtransfn uinteger default 0,
    aggminvtransfn uinteger default 0, aggmfinalfn uinteger default 0, aggfinalextra boolean default false,
    aggmfinalextra boolean default false, aggfinalmodify varchar, aggmfinalmodify varchar,
    aggsortop uinteger default 0, aggtranstype uinteger default 0, aggtransspace bigint default 0,
    aggmtranstype uinteger default 0, aggmtransspace bigint default 0, agginitval varchar, aggminitval varchar);
create table pg_event_trigger (oid uinteger default 0, evtname varchar, evtevent varchar, evtowner uinteger default 0,
    evtfoid uinteger default 0, evtenabled varchar, evttags varchar[]);
create table pg_views (schemaname varchar, viewname varchar, viewowner varchar, definition varchar);
create table pg_matviews (schemaname varchar, matviewname varchar, matviewowner varchar, tablespace varchar,
    hasindexes boolean default false, ispopulated boolean default false, definition varchar);
create table pg_sequences (schemaname varchar, sequencename varchar, sequenceowner varchar, data_type varchar,
    start_value bigint default 0, min_value bigint default 0, max_value bigint default 0,
    increment_by bigint default 0, cycle boolean default false, cache_size bigint default 0,
    last_value bigint default 0);
create table pg_locks (locktype varchar, database uinteger default 0, relation uinteger default 0,
    page bigint default 0, tuple bigint default 0, virtualxid varchar, transactionid bigint default 0,
    classid uinteger default 0, objid uinteger default 0, objsubid bigint default 0, virtualtransaction varchar,
    pid bigint default 0, mode varchar, "granted" boolean default false, fastpath boolean default false,
    waitstart timestamptz);
create table pg_partitioned_table (partrelid uinteger default 0, partstrat varchar, partnatts bigint default 0,
    partdefid uinteger default 0, partattrs bigint[], partclass uinteger[], partcollation uinteger[],
    partexprs varchar);
create table pg_ts_config (oid uinteger default 0, cfgname varchar, cfgnamespace uinteger default 0,
    cfgowner uinteger default 0, cfgparser uinteger default 0);
create table pg_ts_dict (oid uinteger default 0, dictname varchar, dictnamespace uinteger default 0,
    dictowner uinteger default 0, dicttemplate uinteger default 0, dictinitoption varchar);
create table pg_ts_parser (oid uinteger default 0, prsname varchar, prsnamespace uinteger default 0,
    prsstart uinteger default 0, prstoken uinteger default 0, prsend uinteger default 0,
    prsheadline uinteger default 0, prslextype uinteger default 0);
create table pg_ts_template (oid uinteger default 0, tmplname varchar, tmplnamespace uinteger default 0,
    tmplinit uinteger default 0, tmpllexize uinteger default 0);
create table pg_largeobject_metadata (oid uinteger default 0, lomowner uinteger default 0, lomacl varchar);
create table pg_subscription (oid uinteger default 0, subdbid uinteger default 0, subname varchar,
    subowner uinteger default 0, subenabled boolean default false, subbinary boolean default false,
    substream boolean default false, subtwophasestate varchar, subdisableonerr boolean default false,
    subconninfo varchar, subslotname varchar, subsynccommit varchar, subpublications varchar[]);
create table pg_stat_user_tables (relid uinteger default 0, schemaname varchar, relname varchar,
    seq_scan bigint default 0, seq_tup_read bigint default 0, idx_scan bigint default 0,
    idx_tup_fetch bigint default 0, n_tup_ins bigint default 0, n_tup_upd bigint default 0,
    n_tup_del bigint default 0, n_tup_hot_upd bigint default 0, n_live_tup bigint default 0,
    n_dead_tup bigint default 0, n_mod_since_analyze bigint default 0, n_ins_since_vacuum bigint default 0,
    last_vacuum timestamptz, last_autovacuum timestamptz, last_analyze timestamptz, last_autoanalyze timestamptz,
    vacuum_count bigint default 0, autovacuum_count bigint default 0, analyze_count bigint default 0,
    autoanalyze_count bigint default 0);
create table pg_stat_database (datid uinteger default 0, datname varchar, numbackends bigint default 0,
    xact_commit bigint default 0, xact_rollback bigint default 0, blks_read bigint default 0,
    blks_hit bigint default 0, tup_returned bigint default 0, tup_fetched bigint default 0,
    tup_inserted bigint default 0, tup_updated bigint default 0, tup_deleted bigint default 0,
    conflicts bigint default 0, temp_files bigint default 0, temp_bytes bigint default 0, deadlocks bigint default 0,
    checksum_failures bigint default 0, checksum_last_failure timestamptz, blk_read_time double default 0,
    blk_write_time double default 0, session_time double default 0, active_time double default 0,
    idle_in_transaction_time double default 0, sessions bigint default 0, sessions_abandoned bigint default 0,
    sessions_fatal bigint default 0, sessions_killed bigint default 0, stats_reset timestamptz);
create table pg_timezone_names (name varchar, abbrev varchar, utc_offset interval, is_dst boolean default false);
create table pg_available_extensions (name varchar, default_version varchar, installed_version varchar,
    comment varchar);
create table pg_user_mappings (umid uinteger default 0, srvid uinteger default 0, srvname varchar,
    umuser uinteger default 0, usename varchar, umoptions varchar[]);
create table pg_shdepend (dbid uinteger default 0, classid uinteger default 0, objid uinteger default 0,
    objsubid bigint default 0, refclassid uinteger default 0, refobjid uinteger default 0, deptype varchar);
create table pg_default_acl (oid uinteger default 0, defaclrole uinteger default 0,
    defaclnamespace uinteger default 0, defaclobjtype varchar, defaclacl varchar);
create table pg_seclabel (objoid uinteger default 0, classoid uinteger default 0, objsubid bigint default 0,
    provider varchar, label varchar);
create table pg_db_role_setting (setdatabase uinteger default 0, setrole uinteger default 0, setconfig varchar[]);

insert into pg_type (oid, typname, typlen, typbyval, typtype, typcategory, typispreferred, typdelim, typelem, typarray, typinput,
    typnotnull, typalign, typstorage, typcollation, typsubscript) values
    (16, 'bool', 1, true, 'b', 'B', true, ',', 0, 1000, 1242, false, 'c', 'p', 0, 0),
    (17, 'bytea', -1, false, 'b', 'U', false, ',', 0, 1001, 1244, false, 'i', 'x', 0, 0),
    (18, 'char', 1, true, 'b', 'Z', false, ',', 0, 1002, 1245, false, 'c', 'p', 0, 0),
    (19, 'name', 64, false, 'b', 'S', false, ',', 18, 1003, 34, false, 'c', 'p', 950, 0),
    (20, 'int8', 8, true, 'b', 'N', false, ',', 0, 1016, 460, false, 'd', 'p', 0, 0),
    (21, 'int2', 2, true, 'b', 'N', false, ',', 0, 1005, 38, false, 's', 'p', 0, 0),
    (22, 'int2vector', -1, false, 'b', 'A', false, ',', 21, 1006, 40, false, 'i', 'p', 0, 6179),
    (23, 'int4', 4, true, 'b', 'N', false, ',', 0, 1007, 42, false, 'i', 'p', 0, 0),
    (24, 'regproc', 4, true, 'b', 'N', false, ',', 0, 1008, 44, false, 'i', 'p', 0, 0),
    (25, 'text', -1, false, 'b', 'S', true, ',', 0, 1009, 46, false, 'i', 'x', 100, 0),
    (26, 'oid', 4, true, 'b', 'N', true, ',', 0, 1028, 1798, false, 'i', 'p', 0, 0),
    (30, 'oidvector', -1, false, 'b', 'A', false, ',', 26, 1013, 54, false, 'i', 'p', 0, 6179),
    (114, 'json', -1, false, 'b', 'U', false, ',', 0, 199, 321, false, 'i', 'x', 0, 0),
    (199, '_json', -1, false, 'b', 'A', false, ',', 114, 0, 750, false, 'i', 'x', 0, 6179),
    (700, 'float4', 4, true, 'b', 'N', false, ',', 0, 1021, 200, false, 'i', 'p', 0, 0),
    (701, 'float8', 8, true, 'b', 'N', true, ',', 0, 1022, 214, false, 'd', 'p', 0, 0),
    (705, 'unknown', -2, false, 'p', 'X', false, ',', 0, 0, 109, false, 'c', 'p', 0, 0),
    (1000, '_bool', -1, false, 'b', 'A', false, ',', 16, 0, 750, false, 'i', 'x', 0, 6179),
    (1001, '_bytea', -1, false, 'b', 'A', false, ',', 17, 0, 750, false, 'i', 'x', 0, 6179),
    (1002, '_char', -1, false, 'b', 'A', false, ',', 18, 0, 750, false, 'i', 'x', 0, 6179),
    (1003, '_name', -1, false, 'b', 'A', false, ',', 19, 0, 750, false, 'i', 'x', 950, 6179),
    (1005, '_int2', -1, false, 'b', 'A', false, ',', 21, 0, 750, false, 'i', 'x', 0, 6179),
    (1006, '_int2vector', -1, false, 'b', 'A', false, ',', 22, 0, 750, false, 'i', 'x', 0, 6179),
    (1007, '_int4', -1, false, 'b', 'A', false, ',', 23, 0, 750, false, 'i', 'x', 0, 6179),
    (1008, '_regproc', -1, false, 'b', 'A', false, ',', 24, 0, 750, false, 'i', 'x', 0, 6179),
    (1009, '_text', -1, false, 'b', 'A', false, ',', 25, 0, 750, false, 'i', 'x', 100, 6179),
    (1013, '_oidvector', -1, false, 'b', 'A', false, ',', 30, 0, 750, false, 'i', 'x', 0, 6179),
    (1014, '_bpchar', -1, false, 'b', 'A', false, ',', 1042, 0, 750, false, 'i', 'x', 100, 6179),
    (1015, '_varchar', -1, false, 'b', 'A', false, ',', 1043, 0, 750, false, 'i', 'x', 100, 6179),
    (1016, '_int8', -1, false, 'b', 'A', false, ',', 20, 0, 750, false, 'd', 'x', 0, 6179),
    (1021, '_float4', -1, false, 'b', 'A', false, ',', 700, 0, 750, false, 'i', 'x', 0, 6179),
    (1022, '_float8', -1, false, 'b', 'A', false, ',', 701, 0, 750, false, 'd', 'x', 0, 6179),
    (1028, '_oid', -1, false, 'b', 'A', false, ',', 26, 0, 750, false, 'i', 'x', 0, 6179),
    (1042, 'bpchar', -1, false, 'b', 'S', false, ',', 0, 1014, 1044, false, 'i', 'x', 100, 0),
    (1043, 'varchar', -1, false, 'b', 'S', false, ',', 0, 1015, 1046, false, 'i', 'x', 100, 0),
    (1082, 'date', 4, true, 'b', 'D', false, ',', 0, 1182, 1084, false, 'i', 'p', 0, 0),
    (1083, 'time', 8, true, 'b', 'D', false, ',', 0, 1183, 1143, false, 'd', 'p', 0, 0),
    (1114, 'timestamp', 8, true, 'b', 'D', false, ',', 0, 1115, 1312, false, 'd', 'p', 0, 0),
    (1115, '_timestamp', -1, false, 'b', 'A', false, ',', 1114, 0, 750, false, 'd', 'x', 0, 6179),
    (1182, '_date', -1, false, 'b', 'A', false, ',', 1082, 0, 750, false, 'i', 'x', 0, 6179),
    (1183, '_time', -1, false, 'b', 'A', false, ',', 1083, 0, 750, false, 'd', 'x', 0, 6179),
    (1184, 'timestamptz', 8, true, 'b', 'D', true, ',', 0, 1185, 1150, false, 'd', 'p', 0, 0),
    (1185, '_timestamptz', -1, false, 'b', 'A', false, ',', 1184, 0, 750, false, 'd', 'x', 0, 6179),
    (1186, 'interval', 16, false, 'b', 'T', true, ',', 0, 1187, 1160, false, 'd', 'p', 0, 0),
    (1187, '_interval', -1, false, 'b', 'A', false, ',', 1186, 0, 750, false, 'd', 'x', 0, 6179),
    (1231, '_numeric', -1, false, 'b', 'A', false, ',', 1700, 0, 750, false, 'i', 'x', 0, 6179),
    (1263, '_cstring', -1, false, 'b', 'A', false, ',', 2275, 0, 750, false, 'i', 'x', 0, 6179),
    (1700, 'numeric', -1, false, 'b', 'N', false, ',', 0, 1231, 1701, false, 'i', 'm', 0, 0),
    (2205, 'regclass', 4, true, 'b', 'N', false, ',', 0, 2210, 2218, false, 'i', 'p', 0, 0),
    (2206, 'regtype', 4, true, 'b', 'N', false, ',', 0, 2211, 2220, false, 'i', 'p', 0, 0),
    (2210, '_regclass', -1, false, 'b', 'A', false, ',', 2205, 0, 750, false, 'i', 'x', 0, 6179),
    (2211, '_regtype', -1, false, 'b', 'A', false, ',', 2206, 0, 750, false, 'i', 'x', 0, 6179),
    (2249, 'record', -1, false, 'p', 'P', false, ',', 0, 2287, 2290, false, 'd', 'x', 0, 0),
    (2275, 'cstring', -2, false, 'p', 'P', false, ',', 0, 1263, 2292, false, 'c', 'p', 0, 0),
    (2276, 'any', 4, true, 'p', 'P', false, ',', 0, 0, 2294, false, 'i', 'p', 0, 0),
    (2277, 'anyarray', -1, false, 'p', 'P', false, ',', 0, 0, 2296, false, 'd', 'x', 0, 0),
    (2278, 'void', 4, true, 'p', 'P', false, ',', 0, 0, 2298, false, 'i', 'p', 0, 0),
    (2283, 'anyelement', 4, true, 'p', 'P', false, ',', 0, 0, 2312, false, 'i', 'p', 0, 0),
    (2950, 'uuid', 16, false, 'b', 'U', false, ',', 0, 2951, 2952, false, 'c', 'p', 0, 0),
    (2951, '_uuid', -1, false, 'b', 'A', false, ',', 2950, 0, 750, false, 'i', 'x', 0, 6179),
    (3802, 'jsonb', -1, false, 'b', 'U', false, ',', 0, 3807, 3806, false, 'i', 'x', 0, 0),
    (3807, '_jsonb', -1, false, 'b', 'A', false, ',', 3802, 0, 750, false, 'i', 'x', 0, 6179),
    (4089, 'regnamespace', 4, true, 'b', 'N', false, ',', 0, 4090, 4084, false, 'i', 'p', 0, 0),
    (4090, '_regnamespace', -1, false, 'b', 'A', false, ',', 4089, 0, 750, false, 'i', 'x', 0, 6179);

insert into pg_namespace (oid, nspname, nspowner) values
    (11, 'pg_catalog', 10), (2200, 'public', 10), (13000, 'information_schema', 10);
insert into pg_am (oid, amname, amhandler, amtype) values (2, 'heap', 3, 't'), (403, 'btree', 330, 'i');
insert into pg_collation (oid, collname, collnamespace, collowner, collprovider, collisdeterministic, collencoding, collcollate,
    collctype) values (100, 'default', 11, 10, 'd', true, -1, null, null), (950, 'C', 11, 10, 'c', true, -1, 'C', 'C');
insert into pg_language (oid, lanname, lanowner) values (12, 'internal', 10), (13500, 'tidemill', 10);
insert into pg_tablespace (oid, spcname, spcowner) values (1663, 'pg_default', 10), (1664, 'pg_global', 10);
insert into pg_roles (oid, rolname, rolsuper, rolinherit, rolcanlogin, rolconnlimit) values (10, 'tidemill', true, true, false, -1);
