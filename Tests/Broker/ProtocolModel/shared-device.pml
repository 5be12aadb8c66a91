/*
 * The protocol between the broker of a shared device and its apps, for the model checker SPIN. README.md explains the
 * model and its terms; ./check runs it.
 *
 * A `d_step` is one step in reality: one commit, one sent message, or one replaced file. Between two steps all other
 * processes may take steps, and any process may crash. A process that is slow, or stopped by a signal, needs no rule:
 * its next step comes late.
 */

/* ---- Parameters, which ./check sets ---- */

#ifndef APPS
#define APPS 2          /* 2 or 3 apps of one process each */
#endif
#ifndef SHARED
#define SHARED 0        /* 1: two processes of one app share record and data; a killed process stays gone */
#endif
#ifndef MAY_RETURN
#define MAY_RETURN 0    /* 1, only with SHARED: a third process may follow a killed one */
#endif
#ifndef CONFIGURATIONS
/* 1: the configuration is broken at the first start. It is corrected, and may be broken once more, at any time. */
#define CONFIGURATIONS 0
#endif
#ifndef SESSIONS
#define SESSIONS 3      /* sign-ins in a run */
#endif
#ifndef BROKER_CRASHES
#define BROKER_CRASHES 1
#endif
#ifndef APP_CRASHES
#define APP_CRASHES 1   /* of all apps together */
#endif

/* The policies: how long the next sign-in waits for the cleanup. */
#define STRICT   1      /* until all receipts are there */
#define TIMEOUT  2      /* for a limited time */
#define ADVISORY 3      /* not at all */
#ifndef POLICY
#define POLICY STRICT
#endif

#ifndef TOKENS
#define TOKENS 1        /* token requests of all apps together */
#endif
#ifndef WAIVERS
#define WAIVERS 0       /* how often an administrator may waive the duties of an app */
#endif
#ifndef MAY_STAY_DOWN
#define MAY_STAY_DOWN 0 /* 1: an app that crashed may never run again */
#endif

/* ---- Mutants: the model with one broken rule, which a property must detect; see README.md ---- */

#define M1A_BROADCAST_BEFORE_COMMIT     1
#define M1B_ANSWER_BEFORE_HOLDS         2
#define M1C_SIGNED_OUT_BEFORE_COMMIT    3
#define M2_RECEIPT_BEFORE_DELETION      4
#define M3_RECORD_AFTER_DATA            5
#define M4_SIGN_IN_WHILE_OWED           6
#define M5_OLDER_ANSWER_ACCEPTED        7
#define M6A_RECORD_FORGETS_ON_REPORT    8
#define M6B_LEDGER_FORGETS_ON_REPORT    9
#define M7_SAME_USER_IS_NO_CHANGE      10
#define M8_CRASH_SETTLES               11
#define M9_TOKEN_FOR_DEBTOR            12
#define M10_WORK_OUTLIVES_CLEANUP      13
#define M11_SIGN_OUT_BY_USER           14
#define M12_TOKEN_BESIDE_STALE_DATA    15
#define M13_SILENT_LOSS                16
#define M14_NO_BROADCAST_AT_RESTART    17
#define M15_BROADCAST_LOST_WHILE_ASKING 18
#define M16_SIGN_IN_WITHOUT_HOLDS      19
#define M17_LOST_RECEIPT_NOT_REPEATED  20
#define M18_NO_QUESTION_AFTER_RECEIPT  21
#define M19_ONE_RECEIPT_FOR_ALL        22
#define M20_END_UNREPORTED_FORGOTTEN   23
#define M21_OTHERS_CLEANUP_IS_MINE     24
#define M22_RESTART_TRUSTS_RECEIPTS    26
#define M23_BROKEN_IS_DEFAULT          27
#define M24_NEVER_CONFIGURED_SIGNS_IN  28
#define M25_BROKEN_FORGETS_THE_LAST    29
#define M26_RECEIPT_ONLY_IF_RECORDED   30
#define M27_AGAIN_IS_NOT_SAID          31
#ifndef MUTANT
#define MUTANT 0
#endif
#define IS(mutant) (MUTANT == mutant)

/* ---- Terms ---- */

/* Sessions have the numbers 1, 2, 3. The sign-in of session s made the epoch 2s-1, and its end makes the epoch 2s. */
#define EPOCH(s) (2 * (s) - 1)
/* The first two sessions are of the same user. */
#define USER(s)  (((s) + 1) / 2)
/* A set of sessions has one bit for each session. Bit 0 stands for "no user is signed in", and is in no set. */
#define BIT(s)   (1 << (s))
#define BELOW(s) (BIT(s) - 1)
/* The app of a process. With SHARED, both processes share record, data and duties; otherwise each app is a process. */
#if SHARED
#define OF(process) 0
#else
#define OF(process) (process)
#endif

mtype = { Ask, Receipt, SignIn, SignOut, Token };                      /* requests */
mtype = { Answer, Granted, Done, Failed };                             /* replies; a refusal changes nothing */
mtype = { Ready, Asking, Hiding, Deleting, Forgetting, Reporting, AwaitingReceipt, Gone };  /* phases of a library */
mtype = { Idle, Committed, HoldsLate, EndLate };                       /* the broker's steps; the last two: mutants */

/* ---- The broker ---- */

/* Durable: only commits change it. */
byte current;           /* the open session; 0 if there is none */
byte opened;            /* the number of sessions so far */
byte epoch;
bool holds[APPS];       /* whether the app was given the account or a token of the open session */
byte duty[APPS];        /* the ended sessions for which the app still owes a receipt */
byte expired;           /* the ended sessions that no sign-in waits for any longer */
#if CONFIGURATIONS
bool kept;              /* whether the broker has a copy of a valid configuration, for a start with a broken file */
#endif

/* Volatile: the remaining work for the request in progress. */
mtype step = Idle;
bool announcing;        /* a broadcast is due */
mtype replyTo, reply;   /* the request to reply to, and the reply; 0 if no reply is due */
byte replyApp, replySession;
#if SHARED
byte waits[APPS];       /* for each process: the sessions for which the broker waits for the receipt of this process */
byte asked[APPS];       /* for each process: the sessions in `mustAsk` after whose entry it has asked the broker */
byte mustAsk;           /* the sessions for which a receipt counts only if its sender has asked again */
byte receipted;         /* the ended sessions for which a process has sent a receipt */
bool left[APPS];        /* for each process: whether its connection has ended and the broker does not know this yet */
#endif
#if CONFIGURATIONS
bool configured;        /* whether a valid configuration is in force: the file or the kept copy */
bool lax;               /* for a mutant: the next sign-in does not wait */

/* ---- The administrator's file ---- */

bool broken = true;
byte typos = 1;
#endif

/* ---- An app ---- */

/* Durable. */
byte record[APPS];      /* the sessions whose data the app may hold */
byte data[APPS];        /* the sessions whose data is on the disk */
#if SHARED
byte receipts;          /* in the record: the sessions that are cleaned up, with unconfirmed receipts */
#endif

/* Volatile: the state of the library. */
bool ask[APPS] = true;  /* whether there is a reason to ask the broker */
mtype phase[APPS] = Ready;
byte seen[APPS];        /* the latest epoch of an accepted answer */
byte stale[APPS];       /* in a cleanup: the sessions whose data has to be deleted */
byte due[APPS];         /* in a cleanup: the sessions to send receipts for */
byte handed[APPS];      /* the session on its way from the library to the app's code; 0 if there is none */
#if SHARED
byte held[APPS];        /* the sessions that this process was told of and has not cleaned up */
#endif

/* Volatile: the state of the app's code. */
byte shows[APPS];       /* the session that the app shows or works for */

/* Only for properties. */
byte reported[APPS];    /* the sessions that the app has sent a receipt for */
byte waived[APPS];      /* the sessions whose duty was waived */

/* ---- Messages ---- */

/* A request of the app's code in transit to the broker: a sign-out or a request for a token. The transit may take any
 * time, and the process may be killed during it. Account requests, receipts and sign-ins have no transit: their content
 * does not depend on the time at which they are sent, so the delay can precede the sending. */
mtype sent[APPS];
byte sentSession[APPS];
bool orphaned[APPS];    /* whether the process was killed, so that the reply has no recipient */
/* Answers to the library and replies to the app's code wait here for any time, and may overtake each other. */
chan answers[APPS] = [1] of { mtype, byte, byte, byte };    /* kind, session, epoch, owed sessions */
chan replies[APPS] = [1] of { mtype, mtype, byte, byte };   /* request, kind, session, epoch */
#define WAITING(app) (sent[app] != 0 || len(replies[app]) > 0 || (step != Idle && replyTo != 0 && replyTo != Ask && \
    replyTo != Receipt && replyApp == app))

/* How often each of these may still happen. */
byte brokerCrashes = BROKER_CRASHES;
byte appCrashes = APP_CRASHES;
byte waivers = WAIVERS;
byte tokens = TOKENS;

/* Scratch variables within a step. They are not part of the state. */
hidden byte which, stamp, owes, again, each;
hidden mtype kind, about;

/* ---- Properties of every state ---- */

hidden byte P1_one_session = 1, P2_gone_is_gone = 1, P3_debtor_waits = 1, P4_debt_no_leak = 1, P6_true_reply = 1,
    P7_configured = 1;

#define ENDED(set) ((set) & ~BIT(current))
#if APPS == 3
#define EACH(P) (P(0) && P(1) && P(2))
#define UNION(set) (set[0] | set[1] | set[2])
#else
#define EACH(P) (P(0) && P(1))
#define UNION(set) (set[0] | set[1])
#endif

/* No ended session has data on the disk, is shown or is on its way to the app's code, unless its duty was waived. */
#define CLEAN(x) ((ENDED(data[OF(x)] | BIT(shows[x]) | BIT(handed[x])) & ~(waived[OF(x)] | BIT(0))) == 0)
/* A debtor was not given the open session, and shows no session after the one that it owes a cleanup for. */
#define POOR(x) ((duty[OF(x)] == 0 || !holds[OF(x)]) && (duty[OF(x)] & (BELOW(shows[x]) | BELOW(handed[x]))) == 0)
/* The ledger or the record names each ended session whose data is on the disk. */
#define OWED(x) ((ENDED(data[OF(x)]) & ~(duty[OF(x)] | record[OF(x)])) == 0)

inline check() {
    P1_one_session = POLICY != STRICT || current == 0 || EACH(CLEAN); assert(P1_one_session);
    P3_debtor_waits = EACH(POOR); assert(P3_debtor_waits);
    P4_debt_no_leak = EACH(OWED); assert(P4_debt_no_leak)
}

/* The app has sent no receipt for the session that it shows or works for, and has no data of another session. The
 * session is the one in the last accepted answer. An app that is about to hide its screen is exempt. */
inline check_use(session) {
    P2_gone_is_gone = !(reported[self] & BIT(session)) && (data[OF(self)] & ~BIT(session)) == 0 || phase[self] == Hiding;
    assert(P2_gone_is_gone);
    P2_gone_is_gone = seen[self] == EPOCH(session) || phase[self] == Hiding;
    assert(P2_gone_is_gone)
}

/* ---- The broker's commits; each is part of a step ---- */

inline end_session() {
    each = 0;
    do
    :: each < APPS -> if :: holds[each] -> duty[each] = duty[each] | BIT(current) :: else fi; holds[each] = false; each++
    :: else -> break
    od;
    current = 0; epoch++
}

inline settle(app, sessions) {
    duty[OF(app)] = duty[OF(app)] & ~(sessions);
#if SHARED
    waits[0] = waits[0] & ~(sessions); waits[1] = waits[1] & ~(sessions); asked[0] = asked[0] & ~(sessions);
    asked[1] = asked[1] & ~(sessions); mustAsk = mustAsk & ~(sessions); receipted = receipted & ~(sessions);
#endif
    expired = expired & UNION(duty)
}

/* The sessions that the next sign-in waits for. */
#define OPEN_DUTIES (UNION(duty) & ~expired)
#define NO_CHANGE (IS(M7_SAME_USER_IS_NO_CHANGE) && opened > 0 && USER(opened) == USER(opened + 1))
#define SIGN_IN_WAITS (POLICY != ADVISORY && OPEN_DUTIES != 0 && !IS(M4_SIGN_IN_WHILE_OWED) && !NO_CHANGE && !LAX)
#if CONFIGURATIONS
#define LAX lax
#define CONFIGURED (configured || IS(M24_NEVER_CONFIGURED_SIGNS_IN))
#else
#define LAX false
#define CONFIGURED true
#endif

/* Notes that this process is given the account of the open session. */
inline give(app, isListed) {
    holds[OF(app)] = isListed;
#if SHARED
    waits[app] = waits[app] | BIT(current)
#endif
}

inline open_session(app) {
    if
    :: NO_CHANGE ->
        each = 0;
        do
        :: each < APPS -> duty[each] = duty[each] & ~BIT(opened); each++
        :: else -> break
        od
    :: else
    fi;
    opened++; current = opened; epoch++;
#if CONFIGURATIONS
    P7_configured = kept; assert(P7_configured);
#endif
    give(app, !IS(M16_SIGN_IN_WITHOUT_HOLDS))
}

/* ---- The broker's messages ---- */

/* Tells all apps to ask. A broadcast contains no data. */
inline broadcast() {
    each = 0;
    do
    :: each < APPS ->
        if
        :: phase[each] == Gone || (IS(M13_SILENT_LOSS) && each == 1) || (IS(M15_BROADCAST_LOST_WHILE_ASKING) && phase[each] == Asking)
        :: else -> ask[each] = true
        fi;
        each++
    :: else -> break
    od
}

/* Prepares the reply to the request in progress. */
inline prepare(app, to, what, session) {
    replyApp = app; replyTo = to; reply = what; replySession = session
}

inline forget_reply() { replyApp = 0; replyTo = 0; reply = 0; replySession = 0 }

inline send_reply() {
    if
    :: replyTo == 0
    :: replyTo == Ask || replyTo == Receipt -> answers[replyApp]!reply, replySession, epoch, 0
    :: else -> replies[replyApp]!replyTo, reply, replySession, epoch
    fi;
    forget_reply()
}

/* Only requests that change something need these. The others get their reply at once. */
inline commit_then_reply() { step = Committed; announcing = false }
inline commit_then_announce() { step = Committed; announcing = true }

/* ---- Requests to the broker: each is decided and committed in one step, and ends before the next one begins ---- */

/* The duties of the app, without the sessions that this process has reported. Another process owes their receipts. */
#if SHARED
#define OWES(app) (duty[0] & ~(receipted & ~waits[app]))
/* The duties in an answer. The upper bits are the sessions for which an earlier cleanup does not count. */
#define OWED(app) (OWES(app) | ((OWES(app) & again) << 4))
#define OWED_BITS 15
#define AGAIN(owed) ((owed) >> 4)
#else
#define OWES(app) duty[app]
#define OWED(app) duty[app]
#endif

/* A request for the account. */
inline get_account(app) {
#if SHARED
    /* Earlier receipts for the sessions in `mustAsk` do not count: a process may have stored something since. */
    again = mustAsk;
    waits[app] = waits[app] | (duty[0] & mustAsk & ~asked[app]); asked[app] = asked[app] | (duty[0] & mustAsk);
#endif
    if
    :: OWES(app) != 0 ->
        /* A debtor is told its debt, and no account. */
        answers[app]!Answer, 0, epoch, OWED(app);
        if :: IS(M6B_LEDGER_FORGETS_ON_REPORT) -> duty[OF(app)] = 0 :: else fi
    :: else ->
        prepare(app, Ask, Answer, current);
        if
        :: current == 0 -> send_reply()
        :: current != 0 && holds[OF(app)] -> give(app, true); send_reply()
        :: else ->
            if
            :: IS(M1B_ANSWER_BEFORE_HOLDS) -> send_reply(); replyApp = app; step = HoldsLate
            :: else -> give(app, true); commit_then_reply()
            fi
        fi
    fi
}

/* A receipt. A repeated receipt changes nothing. */
inline take_receipt(app, session) {
    /* No app owes a cleanup for the open session. */
    P4_debt_no_leak = session != current; assert(P4_debt_no_leak);
    prepare(app, Receipt, Done, session);
    if
    :: duty[OF(app)] & BIT(session) ->
#if SHARED
        if
        :: mustAsk & ~asked[app] & BIT(session) ->
            /* Since the sender asked, a process has ended that may have stored something. The sender has to ask and
             * clean up again. */
            commit_then_announce()
        :: else ->
            waits[app] = waits[app] & ~BIT(session); receipted = receipted | BIT(session);
            if
            :: ((waits[0] | waits[1]) & BIT(session)) == 0 || IS(M19_ONE_RECEIPT_FOR_ALL) -> settle(app, BIT(session))
            :: else
            fi;
            commit_then_reply()
        fi
#else
        settle(app, BIT(session)); commit_then_reply()
#endif
    :: else -> send_reply()
    fi
}

#if SHARED
#define LEFT(app) left[app]
/* Handles the end of a connection. If the process was given a session and has sent no receipt, it may have stored data
 * after the cleanup of another process. */
inline hear_of_end(app) {
    left[app] = false;
    which = waits[app] & duty[0];
    waits[app] = 0; asked[app] = 0;
    if
    :: which == 0 || IS(M20_END_UNREPORTED_FORGOTTEN)
    :: else ->
        mustAsk = mustAsk | which; asked[0] = asked[0] & ~which; asked[1] = asked[1] & ~which;
        if :: receipted & which -> receipted = receipted & ~which; commit_then_announce() :: else fi
    fi
}
#else
#define LEFT(app) false
#endif

inline sign_in(app) {
    if
    :: current != 0 || opened == SESSIONS || !CONFIGURED || SIGN_IN_WAITS || (duty[OF(app)] != 0 && !NO_CHANGE && !LAX)
    :: else -> open_session(app); prepare(app, SignIn, Granted, current); commit_then_announce()
    fi
}

/* A request for a token. It names the user, and the reply contains the open session of this user. */
inline get_token(app, session) {
    if
    :: current == 0 || USER(current) != USER(session) || (OWES(app) != 0 && !IS(M9_TOKEN_FOR_DEBTOR))
    :: else ->
        prepare(app, Token, Granted, current);
        if
        :: holds[OF(app)] -> give(app, true); send_reply()
        :: else -> give(app, true); commit_then_reply()
        fi
    fi
}

/* A sign-out. It ends the session that the app named, and no later session of the same user. */
inline sign_out(app, session) {
    if
    :: current == 0 || (current != session && !(IS(M11_SIGN_OUT_BY_USER) && USER(current) == USER(session)))
    :: else ->
        P6_true_reply = current == session; assert(P6_true_reply);
        if
        :: IS(M1A_BROADCAST_BEFORE_COMMIT) -> broadcast(); prepare(app, SignOut, Done, session); step = EndLate
        :: IS(M1C_SIGNED_OUT_BEFORE_COMMIT) -> prepare(app, SignOut, Done, session); send_reply(); step = EndLate
        :: else -> end_session(); prepare(app, SignOut, Done, session); commit_then_announce()
        fi
    fi
}

/* ---- An app's library: it asks, cleans up and sends receipts ---- */

/* Hands the session to the app's code. The record contains the session before that. */
inline enter(session) {
    if :: IS(M3_RECORD_AFTER_DATA) :: else -> record[OF(self)] = record[OF(self)] | BIT(session) fi;
    handed[self] = session
}

#if SHARED
/* Updates the record once, under its lock. Afterwards `owes` contains the sessions whose data has to be deleted. If
 * another process has removed a session that this process was told of, the session returns to the record. The session
 * of the answer is added. An answer says nothing about later sessions, which another process may have been told of. */
inline update_record(session, now) {
    record[0] = record[0] | (held[self] & ~BIT(session));
    owes = record[0] & ~BIT(session) & BELOW((now + 1) / 2 + 1);
    if :: session != 0 -> record[0] = record[0] | BIT(session); held[self] = held[self] | BIT(session) :: else fi
}

/* Combines the record and the debts in the answer. A receipt in the record replaces a cleanup that was done. It
 * replaces neither a cleanup that is due again, nor the cleanup of a process that was itself told of the session. */
inline reconcile() {
    receipts = receipts & owes & ~record[0] & (IS(M27_AGAIN_IS_NOT_SAID) -> 255 : ~AGAIN(owes));
    owes = owes & OWED_BITS;
    record[0] = record[0] | (owes & ~receipts);
    due[self] = receipts & ~(IS(M21_OTHERS_CLEANUP_IS_MINE) -> 0 : held[self])
}
#endif

inline take_answer() {
    answers[self]?kind, which, stamp, owes;
    phase[self] = Ready;
    if
    :: kind == Failed || (stamp < seen[self] && !IS(M5_OLDER_ANSWER_ACCEPTED)) -> ask[self] = true
    :: else ->
        seen[self] = stamp;
#if SHARED
        reconcile();
        if
        :: due[self] != 0 -> phase[self] = Reporting
        :: else ->
            update_record(which, stamp);
            stale[self] = owes;
            if
            :: stale[self] != 0 -> phase[self] = Hiding
            :: else -> if :: which != 0 && which != shows[self] -> handed[self] = which :: else fi
            fi
        fi
#else
        stale[self] = record[self] & ~BIT(which);
        due[self] = stale[self] | (IS(M17_LOST_RECEIPT_NOT_REPEATED) -> 0 : owes);
        if
        :: due[self] != 0 ->
            phase[self] = Hiding;
            if :: IS(M6A_RECORD_FORGETS_ON_REPORT) -> record[self] = record[self] & ~stale[self] :: else fi
        :: else -> if :: which != 0 && which != shows[self] -> enter(which) :: else fi
        fi
#endif
    fi
}

inline cleaned() {
    stale[self] = 0; due[self] = 0; phase[self] = Ready;
    /* The broker did not tell the debtor who is signed in, and this may have changed. */
    if :: IS(M18_NO_QUESTION_AFTER_RECEIPT) :: else -> ask[self] = true fi
}

inline lowest(set) {
    which = 1;
    do
    :: !((set) & BIT(which)) -> which++
    :: else -> break
    od
}

inline take_receipt_reply() {
    answers[self]?kind, which, stamp, owes;
    if
    :: kind == Done -> due[self] = due[self] & ~BIT(which)
    /* It is unknown whether the broker received the receipt. The broker's next answer shows it, and until then the
     * record keeps the receipts. */
    :: else -> due[self] = 0
    fi;
    if
    :: due[self] != 0 -> phase[self] = Reporting
    :: else -> if :: IS(M2_RECEIPT_BEFORE_DELETION) -> phase[self] = Deleting :: else -> cleaned() fi
    fi
}

active [APPS] proctype Library() {
    byte self = _pid;
end:
    do
    :: d_step { step == Idle && ask[self] && phase[self] == Ready && !LEFT(self) ->
        ask[self] = false; phase[self] = Asking; get_account(self); check() }
#if MUTANT == M1A_BROADCAST_BEFORE_COMMIT
    /* Another thread of the broker reads the committed state. */
    :: d_step { step == EndLate && holds[self] && ask[self] && phase[self] == Ready ->
        ask[self] = false; phase[self] = Asking; answers[self]!Answer, current, epoch, 0 }
#endif
    :: d_step { phase[self] == Asking && len(answers[self]) > 0 -> take_answer(); check() }
    /* The app hides its screen and stops all work before the deletion. */
    :: d_step { phase[self] == Hiding ->
        shows[self] = 0;
        if :: IS(M10_WORK_OUTLIVES_CLEANUP) :: else -> handed[self] = 0 fi;
        phase[self] = (IS(M2_RECEIPT_BEFORE_DELETION) || stale[self] == 0 -> Reporting : Deleting) }
    /* Deletes one session after another. A crash leaves the data of the remaining sessions. */
    :: d_step { phase[self] == Deleting ->
        if
        :: (data[OF(self)] & stale[self]) != 0 -> lowest(data[OF(self)] & stale[self]); data[OF(self)] = data[OF(self)] & ~BIT(which)
        :: else
        fi;
        if :: (data[OF(self)] & stale[self]) != 0 :: else -> phase[self] = Forgetting fi;
        check() }
    /* Removes the sessions from the record before the receipts are sent. */
    :: d_step { phase[self] == Forgetting ->
#if SHARED
        /* Another process may have removed a session from the record. The broker still waits for this process. */
        due[self] = stale[self] & (IS(M26_RECEIPT_ONLY_IF_RECORDED) -> record[0] | held[self] : 255);
        receipts = (receipts & ~stale[self]) | due[self]; held[self] = held[self] & ~stale[self];
#endif
        record[OF(self)] = record[OF(self)] & ~stale[self];
        stale[self] = 0;
        if :: IS(M2_RECEIPT_BEFORE_DELETION) || due[self] == 0 -> cleaned() :: else -> phase[self] = Reporting fi;
        check() }
    :: d_step { step == Idle && phase[self] == Reporting ->
        lowest(due[self]); reported[self] = reported[self] | BIT(which);
        phase[self] = AwaitingReceipt; take_receipt(self, which); check() }
    :: d_step { phase[self] == AwaitingReceipt && len(answers[self]) > 0 -> take_receipt_reply(); check() }
    od
}

/* ---- An app's code, and the person who uses it ---- */

inline serve_request() {
    /* These scratch variables keep their values until the end of this step. */
    about = sent[self]; which = sentSession[self];
    sent[self] = 0; sentSession[self] = 0;
    if
    :: about == SignOut -> sign_out(self, which)
    :: about == Token -> get_token(self, which)
    fi;
    if
    :: orphaned[self] ->
        orphaned[self] = false;
        forget_reply();
        if :: len(replies[self]) > 0 -> replies[self]?about, kind, which, stamp :: else fi
    :: else
    fi
}

inline take_reply() {
    replies[self]?about, kind, which, stamp;
    if
    :: kind == Granted ->
        /* The app drops a reply of an older epoch, and any reply while it has data of another session. It then asks. */
#if SHARED
        owes = BIT(0);
        if :: stamp >= seen[self] -> update_record(which, stamp) :: else fi;
        if
        :: owes == 0 -> seen[self] = stamp; if :: which != shows[self] -> handed[self] = which :: else fi
        :: else -> ask[self] = true
        fi
#else
        if
        :: (stamp >= seen[self] || IS(M5_OLDER_ANSWER_ACCEPTED)) &&
            ((record[self] & ~BIT(which)) == 0 || IS(M12_TOKEN_BESIDE_STALE_DATA)) ->
            seen[self] = stamp;
            if :: which != shows[self] -> enter(which) :: else fi
        :: else -> ask[self] = true
        fi
#endif
    :: kind == Done -> P6_true_reply = current != which; assert(P6_true_reply)
    :: kind == Failed -> ask[self] = true
    fi
}

inline end_process() {
    appCrashes--;
    if
    :: IS(M8_CRASH_SETTLES) && (phase[self] == Hiding || phase[self] == Deleting) -> settle(self, duty[self])
    :: else
    fi;
    ask[self] = true; phase[self] = Ready; seen[self] = 0; stale[self] = 0; due[self] = 0; handed[self] = 0; shows[self] = 0;
    if :: len(answers[self]) > 0 -> answers[self]?kind, which, stamp, owes :: else fi;
    if :: len(replies[self]) > 0 -> replies[self]?about, kind, which, stamp :: else fi;
    if :: replyTo != 0 && replyApp == self -> forget_reply() :: else fi
#if SHARED
    held[self] = 0; left[self] = true
#endif
}

#define MAY_REQUEST (phase[self] != Gone && !WAITING(self) && handed[self] == 0)

active [APPS] proctype App() {
    byte self = _pid - APPS;
end:
    do
    /* The person signs in. The first sign-in is in app 0: as the apps are alike, no other order is lost. */
    :: d_step { step == Idle && MAY_REQUEST && !LEFT(self) && shows[self] == 0 && opened < SESSIONS &&
        (opened > 0 || self == 0 || MAY_STAY_DOWN) ->
        sign_in(self); check() }
    :: d_step { MAY_REQUEST && shows[self] != 0 -> sent[self] = SignOut; sentSession[self] = shows[self] }
    :: d_step { MAY_REQUEST && shows[self] != 0 && tokens > 0 -> tokens--; sent[self] = Token; sentSession[self] = shows[self] }
    :: d_step { shows[self] != 0 && !(data[self] & BIT(shows[self])) ->
        check_use(shows[self]); data[self] = data[self] | BIT(shows[self]); check() }
    /* The person does nothing. */
    :: d_step { MAY_REQUEST && shows[self] != 0 -> skip }
    /* The request arrives at the broker. */
    :: d_step { step == Idle && sent[self] != 0 -> serve_request(); check() }
    /* The library takes one answer at a time. */
    :: d_step { phase[self] != Asking && len(replies[self]) > 0 -> take_reply(); check() }
    :: d_step { handed[self] != 0 -> check_use(handed[self]); shows[self] = handed[self]; handed[self] = 0; check() }
    /* The process is killed, and the bus or a person starts it again. It begins by asking the broker, and does nothing
     * before that, so the model needs no state for the time in between. A request in transit is lost, or arrives. */
#if !SHARED || MAY_RETURN
    :: d_step { appCrashes > 0 && phase[self] != Gone -> end_process(); sent[self] = 0; sentSession[self] = 0; check() }
#endif
#if !SHARED
    :: d_step { appCrashes > 0 && phase[self] != Gone && sent[self] != 0 -> end_process(); orphaned[self] = true; check() }
#endif
#if MAY_STAY_DOWN || SHARED
    /* The process is killed and never starts again. */
    :: d_step { appCrashes > 0 && phase[self] != Gone ->
        end_process(); sent[self] = 0; sentSession[self] = 0; ask[self] = false; phase[self] = Gone; check() }
#endif
#if MUTANT == M3_RECORD_AFTER_DATA
    :: d_step { (data[self] & ~record[self]) != 0 -> record[self] = record[self] | data[self] }
#endif
    od
}

/* ---- The broker's process ---- */

active proctype Broker() {
end:
    do
    /* The broker is killed. The bus tells the caller of the request in progress that there is no reply. After its
     * restart, by the bus or a service manager, the broker tells all apps to ask. It does nothing before that, so the
     * model needs no state for the time in between. */
    :: d_step { brokerCrashes > 0 && step != Idle ->
        brokerCrashes--;
        if :: replyTo != 0 -> reply = Failed; send_reply() :: else -> forget_reply() fi;
#if SHARED
        /* The broker no longer knows which processes have asked. The ledger contains the connections that were given a
         * session, and the bus reports which of these are closed. */
        asked[0] = 0; asked[1] = 0; receipted = 0;
        if :: IS(M22_RESTART_TRUSTS_RECEIPTS) -> mustAsk = 0 :: else fi;
#endif
#if CONFIGURATIONS
        /* The broker reads the file again. */
        configured = !broken || (kept && !IS(M25_BROKEN_FORGETS_THE_LAST));
        lax = broken && IS(M23_BROKEN_IS_DEFAULT);
#endif
        if :: IS(M14_NO_BROADCAST_AT_RESTART) -> announcing = false; step = Idle :: else -> commit_then_announce() fi }
#if SHARED
    :: d_step { step == Idle && left[0] -> hear_of_end(0); check() }
    :: d_step { step == Idle && left[1] -> hear_of_end(1); check() }
#endif
    /* The administrator or a timer of the device ends the session, or neither does. */
    :: d_step { step == Idle && current != 0 -> end_session(); commit_then_announce(); check() }
    :: d_step { step == Idle && current != 0 -> skip }
    /* The messages that follow a commit. */
    :: d_step { step == Committed ->
        if :: announcing -> broadcast() :: else fi;
        send_reply(); announcing = false; step = Idle }
#if MUTANT == M1B_ANSWER_BEFORE_HOLDS
    :: d_step { step == HoldsLate -> holds[replyApp] = true; replyApp = 0; step = Idle }
#endif
#if MUTANT == M1A_BROADCAST_BEFORE_COMMIT || MUTANT == M1C_SIGNED_OUT_BEFORE_COMMIT
    :: d_step { step == EndLate -> end_session(); commit_then_reply(); announcing = IS(M1C_SIGNED_OUT_BEFORE_COMMIT) }
#endif
#if WAIVERS > 0
    :: d_step { step == Idle && waivers > 0 && duty[0] != 0 -> waivers--; waived[0] = waived[0] | duty[0]; settle(0, duty[0]); check() }
    :: d_step { step == Idle && waivers > 0 && duty[1] != 0 -> waivers--; waived[1] = waived[1] | duty[1]; settle(1, duty[1]); check() }
#endif
    od
}

#if CONFIGURATIONS
active proctype Administrator() {
end:
    do
    /* A running broker applies a valid file, and keeps a copy. A broken file changes nothing until the next start. The
     * administrator has to correct the file before the first valid configuration; a later mistake may stay. */
    :: d_step { step == Idle && broken -> broken = false; configured = true; kept = true; lax = false }
    :: d_step { step == Idle && broken && kept -> skip }
    :: d_step { !broken && typos > 0 -> typos--; broken = true }
    :: d_step { !broken && typos > 0 -> skip }
    od
}
#endif

#if POLICY == TIMEOUT
active proctype Timer() {
end:
    do
    :: d_step { step == Idle && OPEN_DUTIES != 0 -> expired = UNION(duty) }
    od
}
#endif

/* ---- Properties of every run in which each process that can continue does so at some time ---- */

/* P5: each round ends, by receipts or by the timeout. */
ltl rounds_end { [] (OPEN_DUTIES != 0 -> <> (OPEN_DUTIES == 0)) }
/* P5: while no session is open, a user signs in at some time, unless the run has had all its sessions. */
ltl wishes_granted { [] (current == 0 && opened < SESSIONS -> <> (current != 0)) }
/* P5: each app shows the open session at some time, or the session ends before. */
#define SHOWN(x) (shows[x] == current)
ltl all_follow { [] ((current != 0) -> <> (current == 0 || EACH(SHOWN))) }
