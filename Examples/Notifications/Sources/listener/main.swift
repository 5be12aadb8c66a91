import NotifyCenter

let center = DistributedNotifyCenter.default
for await order in try await center.notifications(named: "com.example.order") {
    print(order.object ?? "no object", order.userInfo?["total"]?.doubleValue ?? 0)
}
