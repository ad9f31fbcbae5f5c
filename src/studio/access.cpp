#include "studio/access.h"

#include <algorithm>
#include <array>

namespace melete {

namespace {

// "name:port", "[::1]:port", "name" -> the name without port and brackets
std::string host_name(const std::string& host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.rfind(':'));
}

std::string cookie(const std::string& cookies, const std::string& name) {
  size_t at = 0;
  while (at < cookies.size()) {
    const size_t end = std::min(cookies.find(';', at), cookies.size());
    std::string one = cookies.substr(at, end - at);
    one.erase(0, one.find_first_not_of(' '));
    if (one.starts_with(name + "=")) return one.substr(name.size() + 1);
    at = end + 1;
  }
  return "";
}

}  // namespace

bool is_loopback(const std::string& address) {
  // By its numbers: 127.0.0.1.evil.example is a name that anyone may point here.
  return address == "localhost" || address == "::1" ||
         (address.starts_with("127.") && address.find_first_not_of("0123456789.") == std::string::npos);
}

bool same_secret(const std::string& a, const std::string& b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |=
        static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  return difference == 0;
}

AccessDecision decide_access(const AccessRules& rules, const std::function<std::string(const char*)>& header,
                             const std::function<std::string(const char*)>& query) {
  const std::string host = header("Host"), origin = header("Origin"), site = header("Sec-Fetch-Site");
  if (host.empty()) return {400, "expected a Host header"};
  if (is_loopback(rules.address) && !is_loopback(host_name(host)))
    return {403,
            "this studio answers as localhost only; start it with --address and --token to reach it by name"};
  if (!origin.empty() && origin != "http://" + host && origin != "https://" + host)
    return {403, "requests of pages of another site are refused"};
  if (site == "cross-site" && !header("Sec-Fetch-Mode").starts_with("navigate"))
    return {403, "requests of pages of another site are refused"};
  if (rules.token.empty()) return {};
  const std::string bearer = header("Authorization");
  if (bearer.starts_with("Bearer ") && same_secret(rules.token, bearer.substr(7))) return {};
  if (same_secret(rules.token, cookie(header("Cookie"), "melete_studio"))) return {};
  const std::string asked = query("token");
  if (!asked.empty() && same_secret(rules.token, asked)) return {200, "", true};
  return {401, "a token is needed: open the address with ?token=..., or send Authorization: Bearer ..."};
}

}  // namespace melete
