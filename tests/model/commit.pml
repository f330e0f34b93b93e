/* commit.pml: who decides, and that it stays decided. Commit, seal, receipts and refusals.
 *
 * Words as in the README: LANDED = a shard holds a gradient's whole range; a record is ADMIT, REFUSE or
 * LEAVE; a log is LOGGED on a shard record by record; SEAL begins an epoch, SEALED promises to follow
 * nobody lower and tells the whole log; a RECEIPT is what the worker has been told.
 *
 * The network is a soup: a message that was ever sent may arrive late, twice, out of order or never (never:
 * the receiving branch is not chosen). Coordinators of older epochs are never killed; they go on as zombies.
 * A coordinator that crashes is one that is not scheduled any more. A worker that dies in mid push is a PUSH
 * that some shard never gets; its restart is LEAVE in the log. Shards lose nothing, their memory is kept; with
 * -DLOSS one of them does, and whoever adopts the rest must know of every receipt, to list what is gone.
 *
 * A mutant is a -D flag that takes one rule away; check.sh lists them, README.md says what each teaches. */
#define SHARDS 2
#define WORKERS 2
#ifndef GRADIENTS
#define GRADIENTS 2
#endif
#ifndef RECORDS
#define RECORDS 2 /* the longest log */
#endif
#ifndef EPOCHS
#define EPOCHS 2
#endif

/* Records as numbers: ADMIT(g) = g, then LEAVE(w), then REFUSE(g). */
#define KINDS (2 * GRADIENTS + WORKERS)
#define owner(g) ((g) % WORKERS)
#define LEAVE(w) (GRADIENTS + (w))
#define REFUSE(g) (GRADIENTS + WORKERS + (g))
#define is_admit(x) ((x) < GRADIENTS)
#define is_leave(x) ((x) >= GRADIENTS && (x) < GRADIENTS + WORKERS)
#define is_refuse(x) ((x) >= GRADIENTS + WORKERS)
#define refused(x) ((x) - GRADIENTS - WORKERS)
#define bit(set, i) (((set) >> (i)) & 1)
#define at(e, s) ((e) * SHARDS + (s))
#define AT_MAX ((EPOCHS + 1) * SHARDS)

/* Shards. */
byte promised[SHARDS];           /* the highest epoch promised */
byte logged[SHARDS];             /* length of the log */
byte record[SHARDS * RECORDS];   /* the log */
byte landed[SHARDS];             /* gradients whose range is here (bit set) */
#ifdef LOSS
bool cold[SHARDS];               /* its memory is gone; it takes part in seals only */
bool sealed_cold[(EPOCHS + 1) * SHARDS];
#define is_cold(s) cold[s]
#else
#define is_cold(s) false
#endif

/* Messages that were sent; they are never taken out of the soup. */
bool seal[EPOCHS + 1];                 /* SEAL(e) */
bool sealed[AT_MAX];                   /* SEALED(e, s), with the log as it was: */
byte sealed_length[AT_MAX];
byte sealed_record[AT_MAX * RECORDS];
byte said_landed[AT_MAX];              /* LANDED(e, s), a bit set */
byte sent[(EPOCHS + 1) * RECORDS];     /* RECORD(e, i): the record + 1, 0: not sent */
byte said_logged[AT_MAX];              /* LOGGED(e, s), cumulative */

/* Ghosts: what the asserts need and no process reads. */
#define NOTHING 0
#define ADMITTED 1
#define REFUSED 2
byte told[GRADIENTS];    /* what the worker has heard */
byte told_length;        /* the longest log that a receipt stood on */
byte ever_landed[SHARDS];
byte order[RECORDS];     /* the one order: what any shard logged first at each index */
byte order_length;

/* Scratch within one d_step, no part of the state. */
hidden byte k;
hidden byte n;
hidden byte found;
hidden byte barred;

#if GRADIENTS == 2
#define choose_gradient(x) if :: x = 0 :: x = 1 fi
#else
#define choose_gradient(x) if :: x = 0 :: x = 1 :: x = 2 fi
#endif
#if GRADIENTS == 2
#define choose_record(x) if :: x = 0 :: x = 1 :: x = 2 :: x = 3 :: x = 4 :: x = 5 fi
#else
#define choose_record(x) if :: x = 0 :: x = 1 :: x = 2 :: x = 3 :: x = 4 :: x = 5 :: x = 6 :: x = 7 fi
#endif
#if EPOCHS == 2
#define choose_epoch(e) if :: e = 1 :: e = 2 fi
#else
#define choose_epoch(e) if :: e = 1 :: e = 2 :: e = 3 fi
#endif

inline in_log(s, x, result)
{
    result = false;
    for (k : 0 .. logged[s] - 1) {
        if :: record[s * RECORDS + k] == x -> result = true :: else fi
    }
}

/* PUSH(g): for the first time, again, or as a very late duplicate. What has its verdict is not stored again. */
inline take_push(s, g)
{
    found = false;
#ifndef MUTANT_SHARD_DEDUPE_OFF
    in_log(s, g, found);
    if :: !found -> in_log(s, REFUSE(g), found) :: else fi;
    if :: !found -> in_log(s, LEAVE(owner(g)), found) :: else fi;
#endif
    if
    :: !found ->
        landed[s] = landed[s] | (1 << g);
        ever_landed[s] = ever_landed[s] | (1 << g)
    :: else
    fi;
    said_landed[at(promised[s], s)] = said_landed[at(promised[s], s)] | landed[s]
}

/* The promise and the content of the log are one step: what is told is what no older epoch can change. */
inline take_seal(s, e)
{
    promised[s] = e;
    sealed_length[at(e, s)] = logged[s];
    for (k : 0 .. logged[s] - 1) {
        sealed_record[at(e, s) * RECORDS + k] = record[s * RECORDS + k]
    }
    sealed[at(e, s)] = true;
#ifdef LOSS
    sealed_cold[at(e, s)] = cold[s];
#endif
    said_landed[at(e, s)] = landed[s]
}

inline assert_record(s, i, x)
{
    in_log(s, x, found);
    assert(!found);                                     /* exactly once */
    if
    :: is_admit(x) ->
        assert(bit(ever_landed[s], x));                 /* all or none */
        in_log(s, LEAVE(owner(x)), found);
        assert(!found);                                 /* the dead worker's incarnation is over */
        in_log(s, REFUSE(x), found);
        assert(!found)                                  /* refused stays refused */
    :: is_refuse(x) ->
        in_log(s, refused(x), found);
        assert(!found)                                  /* admitted stays admitted */
    :: else
    fi;
    if
    :: i < order_length -> assert(order[i] == x)        /* one order */
    :: else ->
        order[i] = x;
        order_length = i + 1
    fi
}

inline release_bodies(s, x)
{
    if
    :: is_admit(x) -> landed[s] = landed[s] & (255 - (1 << x))
    :: is_refuse(x) -> landed[s] = landed[s] & (255 - (1 << refused(x)))
    :: else ->
        for (k : 0 .. GRADIENTS - 1) {
            if :: owner(k) == x - GRADIENTS -> landed[s] = landed[s] & (255 - (1 << k)) :: else fi
        }
    fi
}

/* RECORD(e, j): only the next index, only from the epoch that was promised. */
inline take_record(s, e, j, x)
{
    x = sent[e * RECORDS + j] - 1;
    assert_record(s, logged[s], x);
    record[s * RECORDS + logged[s]] = x;
    logged[s] = logged[s] + 1;
    release_bodies(s, x);
    said_logged[at(promised[s], s)] = logged[s]
}

proctype Shard(byte s)
{
    byte e, j, x;
    do
#ifdef LOSS
    :: d_step {
        !cold[0] && !cold[1] ->
        cold[s] = true;
        for (k : 0 .. RECORDS - 1) {
            record[s * RECORDS + k] = 0
        }
        logged[s] = 0;
        landed[s] = 0
    }
#endif
    :: atomic {
        !is_cold(s) ->
        choose_gradient(x);
        d_step {
            take_push(s, x);
            x = 0
        }
    }
    :: atomic {
        choose_epoch(e);
        if
        :: d_step {
            seal[e] && e > promised[s] ->
            take_seal(s, e);
            e = 0
        }
        :: d_step {
            j = logged[s];
#ifdef MUTANT_INDEX_IGNORED
            if :: j > 0 && j < RECORDS && sent[e * RECORDS + j] == 0 -> j-- :: else fi;
            if :: j + 1 < RECORDS && sent[e * RECORDS + j + 1] != 0 -> j++ :: else fi;
#endif
            if
#ifdef MUTANT_FENCE_OFF
            :: j < RECORDS && logged[s] < RECORDS && !is_cold(s) && sent[e * RECORDS + j] != 0 ->
#else
            :: j < RECORDS && logged[s] < RECORDS && !is_cold(s) && e == promised[s] && sent[e * RECORDS + j] != 0 ->
#endif
                take_record(s, e, j, x)
            :: else
            fi;
            /* What it had before counts as well, once the new coordinator has sent it again. */
            if
            :: promised[s] > 0 && logged[s] > 0 && sent[promised[s] * RECORDS + logged[s] - 1] != 0 ->
                said_logged[at(promised[s], s)] = logged[s]
            :: else
            fi;
            e = 0; j = 0; x = 0
        }
        fi
    }
    od
}

/* The longest log is the truth: write-all makes it hold every record that a receipt stands on. */
inline adopt(e)
{
    k = 0;
#if defined(MUTANT_LOG_SHORTEST)
    if :: sealed_length[at(e, 1)] < sealed_length[at(e, 0)] -> k = 1 :: else fi;
#elif !defined(MUTANT_SEAL_OF_ONE)
    if :: sealed_length[at(e, 1)] > sealed_length[at(e, 0)] -> k = 1 :: else fi;
#endif
    length = sealed_length[at(e, k)];
    n = k;
    for (k : 0 .. length - 1) {
        sent[e * RECORDS + k] = sealed_record[at(e, n) * RECORDS + k] + 1
    }
    /* Nothing that a worker was told is missing, unless somebody newer has taken over already. */
    assert(length >= told_length || promised[0] > e || promised[1] > e);
    /* Whatever stands in the log may never have been told: all of it is owed again. */
    owed = 0;
#ifdef MUTANT_RECEIPTS_NOT_OWED
    owed = (sealed_length[at(e, 0)] < sealed_length[at(e, 1)] -> sealed_length[at(e, 0)] : sealed_length[at(e, 1)]);
#endif
    n = 0
}

/* May x be appended? Whatever was decided of a name is decided; a LEAVE ends its worker's gradients. */
inline bar(e, x)
{
    barred = false;
    for (k : 0 .. length - 1) {
        n = sent[e * RECORDS + k] - 1;
#ifndef MUTANT_DEDUPE_OFF
        if :: n == x -> barred = true :: else fi;
#endif
#ifndef MUTANT_LEAVE_IGNORED
        if :: is_admit(x) && n == LEAVE(owner(x)) -> barred = true :: else fi;
#endif
        if :: is_admit(x) && n == REFUSE(x) -> barred = true :: else fi;
        if :: is_refuse(x) && n == refused(x) -> barred = true :: else fi
    }
    if :: is_admit(x) && bit(unlogged, x) -> barred = true :: else fi;
#ifdef MUTANT_ADMIT_PARTIAL
    if :: is_admit(x) && !bit(said_landed[at(e, 0)] | said_landed[at(e, 1)], x) -> barred = true :: else fi;
#else
    if :: is_admit(x) && !bit(said_landed[at(e, 0)] & said_landed[at(e, 1)], x) -> barred = true :: else fi;
#endif
    n = 0
}

inline tell(x)
{
    if
    :: is_admit(x) ->
        assert(told[x] != REFUSED);                     /* one verdict */
        told[x] = ADMITTED
    :: is_refuse(x) ->
        assert(told[refused(x)] != ADMITTED);
        told[refused(x)] = REFUSED
    :: else
    fi
}

/* Receipts for what all shards have logged in this epoch. */
inline send_receipts(e)
{
    n = (said_logged[at(e, 0)] < said_logged[at(e, 1)] -> said_logged[at(e, 0)] : said_logged[at(e, 1)]);
#if defined(MUTANT_RECEIPT_EARLY)
    n = length;
#elif defined(MUTANT_RECEIPT_AFTER_ONE)
    n = (said_logged[at(e, 0)] > said_logged[at(e, 1)] -> said_logged[at(e, 0)] : said_logged[at(e, 1)]);
#endif
    for (k : owed .. n - 1) {
        assert(k >= order_length || order[k] + 1 == sent[e * RECORDS + k]);
        tell(sent[e * RECORDS + k] - 1)
    }
    if :: n > told_length -> told_length = n :: else fi;
    if :: n > owed -> owed = n :: else fi;
    n = 0
}

/* If all became calm now: the last coordinator's records reach every shard, and with them LOGGED; then each
 * verdict of the log has been told or is owed. Changes nothing. */
inline assert_calm_ends_well(e)
{
    for (k : 0 .. length - 1) {
        n = sent[e * RECORDS + k] - 1;
        if
        :: k < owed && is_admit(n) -> assert(told[n] == ADMITTED)
        :: k < owed && is_refuse(n) -> assert(told[refused(n)] == REFUSED)
        :: else
        fi
    }
    n = 0
}

proctype Coordinator(byte e)
{
    byte length;   /* of its log, which is sent[e] */
    byte owed;     /* the first index whose receipt it has not sent */
    byte unlogged; /* refusals without a record: only a mutant has them */
    byte x;
    seal[e] = true;
#ifdef MUTANT_SEAL_OF_ONE
    (sealed[at(e, 0)]);
#else
    (sealed[at(e, 0)] && sealed[at(e, 1)]);
#endif
    d_step { adopt(e) };
#ifdef LOSS
    /* With a cold member this history is over: the next one starts from a cut, which is not in this model. */
    if :: sealed_cold[at(e, 0)] || sealed_cold[at(e, 1)] -> goto rollback :: else fi;
#endif
    do
    :: atomic {
        length < RECORDS ->
        choose_record(x);
        d_step {
            bar(e, x);
            if
            :: !barred ->
                sent[e * RECORDS + length] = x + 1;
                length++
            :: else
            fi;
            x = 0
        }
    }
    :: d_step { send_receipts(e) }
    :: d_step { e == EPOCHS -> assert_calm_ends_well(e) }
#ifdef MUTANT_REFUSE_UNLOGGED
    :: atomic {
        choose_gradient(x);
        d_step {
            bar(e, REFUSE(x));
            if
            :: !barred && promised[0] <= e && promised[1] <= e ->
                unlogged = unlogged | (1 << x);
                tell(REFUSE(x))
            :: else
            fi;
            x = 0
        }
    }
#endif
    od;
#ifdef LOSS
rollback:
    skip
#endif
}

init
{
    atomic {
        run Shard(0);
        run Shard(1);
        run Coordinator(1);
        run Coordinator(2);
#if EPOCHS > 2
        run Coordinator(3)
#endif
    }
}
