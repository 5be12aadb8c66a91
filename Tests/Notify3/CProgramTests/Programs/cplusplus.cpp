// The functions from C++, as a class would use them.
#include "expect.h"
#include <notify_keys.h>
#include <notify_private.h>
#include <string>

class Registration {
    int token_ = NOTIFY_TOKEN_INVALID;

public:
    explicit Registration(const std::string &name) { EXPECT_OK(notify_register_check(name.c_str(), &token_)); }
    ~Registration() { EXPECT_OK(notify_cancel(token_)); }
    Registration(const Registration &) = delete;
    Registration &operator=(const Registration &) = delete;
    bool changed() const { return checked(token_) == 1; }
};

int main() {
    Registration hostname(kNotifySCHostnameChange), news("org.example.c++");
    EXPECT(hostname.changed() && news.changed());
    EXPECT(!hostname.changed() && !news.changed());
    EXPECT_OK(notify_simple_post("org.example.c++"));
    fence();
    EXPECT(news.changed() && !news.changed() && !hostname.changed());
    return finish();
}
