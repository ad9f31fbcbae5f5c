// Who may ask. On the loopback every program of this machine may, but no web page of another site: a browser
// says where a request comes from (Origin, Sec-Fetch-Site), and a name that points here by a trick of DNS is
// not one of ours (Host). On any other address a token is asked for as well.
#pragma once

#include <functional>
#include <string>

namespace melete {

struct AccessRules {
  std::string address;  // that the server listens on
  int port = 0;
  std::string token;  // empty: none is asked for
};

struct AccessDecision {
  int status = 200;         // 200: go on
  std::string reason;       // for a refusal
  bool set_cookie = false;  // the token came in the address line; the page keeps it as a cookie
};

bool is_loopback(const std::string& address);

// header(name), query(name): empty where there is none.
AccessDecision decide_access(const AccessRules& rules, const std::function<std::string(const char*)>& header,
                             const std::function<std::string(const char*)>& query);

// In time that does not tell how much of it is right.
bool same_secret(const std::string& a, const std::string& b);

}  // namespace melete
